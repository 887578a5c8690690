//! Device interface registers.

use et_devapi::abi::{MAX_DRAM_BYTES, host_managed_len};
use et_devapi::dir::{
    AccessAttr, BarSizes, DirError, MgmtDir, MgmtHeader, MgmtQueues, MgmtStatus, OpsDir, OpsHeader,
    OpsQueues, OpsStatus, Region, RegionRecord,
};
use et_devapi::discovery::Layout as Discovered;
use et_devapi::pci::{DIR_BYTES, MAILBOX_BAR, MGMT_DIR, OPS_DIR};
use et_testkit::golden::{File, Value, array, hex, int, json, object, text, vectors};
use serde_json::Value as Json;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::layout::{Field, Layout, check, layouts};

const BARS: BarSizes = BarSizes::ET_SOC_1;

fn all_layouts() -> Vec<Layout> {
    layouts! {
        "MM_DEV_INTF_GENERIC_ATTR_s" => OpsHeader {
            attributes_size, version, total_size, num_mem_regions, status, crc32
        }
        "MM_DEV_INTF_VQ_ATTR_s" => OpsQueues {
            attributes_size, int_trg_size, int_id, int_trg_offset, sq_offset, sq_count,
            per_sq_size, cq_offset, cq_count, per_cq_size, sq_hp_offset, sq_hp_count,
            per_sq_hp_size
        }
        "MM_DEV_INTF_MEM_REGION_ATTR_s" => RegionRecord {
            attributes_size, r#type, bar, access_attr, bar_offset, bar_size, dev_address
        }
        "SP_DEV_INTF_GENERIC_ATTR_s" => MgmtHeader {
            attributes_size, version, total_size, num_mem_regions, reserved0, crc32,
            ddr_bandwidth, cm_shires_mask, minion_boot_freq, scp_size, l2_size, l3_size, status,
            l2_shire_banks, sync_min_shire_id, arch_rev, form_factor, device_tdp,
            cache_line_size, reserved1, bar0_size, bar2_size
        }
        "SP_DEV_INTF_VQ_ATTR_s" => MgmtQueues {
            attributes_size, int_trg_size, int_id, int_trg_offset, sq_offset, sq_count,
            per_sq_size, cq_offset, cq_count, per_cq_size
        }
        "SP_DEV_INTF_MEM_REGION_ATTR_s" => RegionRecord {
            attributes_size, r#type, bar, access_attr, bar_offset, bar_size, dev_address
        }
    }
}

#[test]
fn structures_have_the_vendors_layout() {
    let vectors = vectors(File::Dir);
    assert_eq!(vectors.len(), 6);
    assert_eq!(check(&vectors, &all_layouts()), 6);
}

/// Compares a block, field by field, with its decoded form in the file.
fn check_block(layout: &str, bytes: &[u8], json: &Json, what: &str) {
    let layouts = all_layouts();
    let layout = layouts.iter().find(|l| l.vector == layout).unwrap();
    let values = (layout.decode)(bytes);
    let mut found = 0;
    for ((name, ..), value) in layout.fields.iter().zip(values) {
        // Reserved bytes are not decoded in the file.
        let Value::Number(number) = value else { continue };
        assert_eq!(number, int(json, name), "{what}: {name}");
        found += 1;
    }
    let extra = usize::from(json.get("access_decoded").is_some());
    assert_eq!(found + extra, object(json).len(), "{what}: a field was not compared");
}

fn check_region(region: &Region, json: &Json, what: &str) {
    assert_eq!(u64::from(region.kind), int(json, "type"), "{what}");
    assert_eq!(u64::from(region.bar), int(json, "bar"), "{what}");
    assert_eq!(u64::from(region.access.bits()), int(json, "access_attr"), "{what}");
    assert_eq!(region.bar_offset, int(json, "bar_offset"), "{what}");
    assert_eq!(region.len_bytes, int(json, "bar_size"), "{what}");
    assert_eq!(region.device_addr.as_u64(), int(json, "dev_address"), "{what}");
    let decoded = &json["access_decoded"];
    for name in object(decoded).keys() {
        let access: AccessAttr = region.access;
        let found: u64 = match name.as_str() {
            "io_access" => access.is_io().into(),
            "node_access" => access.nodes().into(),
            "dma_align" => access.dma_align().into(),
            "dma_elem_count" => access.dma_elem_count().into(),
            "dma_elem_size" => access.dma_elem_size().into(),
            "p2p_access" => access.is_p2p().into(),
            other => panic!("{what}: {other} is not decoded"),
        };
        assert_eq!(found, int(decoded, name), "{what}: {name}");
    }
    assert_eq!(object(decoded).len(), 6, "{what}");
}

/// Compares an image block by block, then region by region with the parsed ones.
fn check_image<'r>(
    image: &Json,
    [header, queues, record]: [&str; 3],
    regions: impl Iterator<Item = &'r Region>,
) {
    let (name, bytes) = (text(image, "name"), hex(text(image, "bytes")));
    assert_eq!(bytes.len() as u64, int(&image["header"], "total_size"), "{name}");
    let mut at = 0;
    let mut next = |layout: &str, json: &Json, what: String| {
        check_block(layout, &bytes[at..], json, &what);
        at += usize::try_from(int(json, "attributes_size")).unwrap();
    };
    next(header, &image["header"], format!("{name} header"));
    next(queues, &image["vqueue"], format!("{name} queues"));
    let list = array(&image["regions"]);
    for (index, json) in list.iter().enumerate() {
        next(record, json, format!("{name} region {index}"));
    }
    assert_eq!(at, bytes.len(), "{name}");
    let parsed: Vec<_> = regions.collect();
    assert_eq!(parsed.len(), list.len(), "{name}");
    for (region, json) in parsed.iter().zip(list) {
        check_region(region, json, name);
    }
}

#[test]
fn images_are_read_and_written() {
    let json = json(File::Dir);
    let images = array(&json["images"]);
    assert_eq!(images.len(), 2);
    let (mut ops, mut mgmt) = (None, None);
    for image in images {
        let (name, bytes) = (text(image, "name"), hex(text(image, "bytes")));
        assert_eq!(int(image, "bar"), u64::from(MAILBOX_BAR.index()), "{name}");
        let at = int(image, "bar_offset");
        let mut out = [0xff; DIR_BYTES];
        match name {
            "ops_dir_ready" => {
                assert_eq!(at, OPS_DIR.as_u64());
                let dir = OpsDir::parse(&bytes, &BARS).unwrap();
                let vectors = [
                    "MM_DEV_INTF_GENERIC_ATTR_s",
                    "MM_DEV_INTF_VQ_ATTR_s",
                    "MM_DEV_INTF_MEM_REGION_ATTR_s",
                ];
                check_image(image, vectors, dir.regions());
                assert_eq!(dir.status(), OpsStatus::Ready);
                assert_eq!(u64::from(dir.version()), int(&image["header"], "version"));
                assert_eq!(dir.queues().as_bytes(), &bytes[16..48]);
                assert_eq!(dir.warnings().iter().count(), 0);
                assert_eq!(dir.encode(&mut out), Some(bytes.len()));
                assert_eq!(out[..bytes.len()], bytes, "{name} from the parsed registers");
                let built = OpsDir::firmware(host_managed_len(MAX_DRAM_BYTES));
                assert_eq!(built, dir);
                assert_eq!(built.encode(&mut out), Some(bytes.len()));
                assert_eq!(out[..bytes.len()], bytes, "{name} from scratch");
                ops = Some(dir);
            }
            "mgmt_dir_ready" => {
                assert_eq!(at, MGMT_DIR.as_u64());
                let dir = MgmtDir::parse(&bytes, &BARS).unwrap();
                let vectors = [
                    "SP_DEV_INTF_GENERIC_ATTR_s",
                    "SP_DEV_INTF_VQ_ATTR_s",
                    "SP_DEV_INTF_MEM_REGION_ATTR_s",
                ];
                check_image(image, vectors, dir.regions());
                assert_eq!(dir.status(), MgmtStatus::DevReady);
                assert_eq!(dir.header.as_bytes(), &bytes[..72]);
                assert_eq!(dir.queues().as_bytes(), &bytes[72..96]);
                assert_eq!(dir.warnings().iter().count(), 0);
                assert_eq!(dir.encode(&mut out), Some(bytes.len()));
                assert_eq!(out[..bytes.len()], bytes, "{name} from the parsed registers");
                let built = MgmtDir::firmware(u32::MAX, 600, 25, (81_920, 16_384, 32_768));
                assert_eq!(built.encode(&mut out), Some(bytes.len()));
                assert_eq!(out[..bytes.len()], bytes, "{name} from scratch");
                mgmt = Some(dir);
            }
            other => panic!("image {other} has no Rust type"),
        }
    }
    let layout = Discovered::new(mgmt.unwrap(), ops.unwrap()).unwrap();
    assert_eq!(layout.ops_mailbox.submission.at.as_u64(), 0x100);
    assert_eq!(layout.ops_mailbox.high_priority.at.as_u64(), 0x980);
    assert_eq!(layout.ops_mailbox.completion.at.as_u64(), 0xa00);
    assert_eq!(layout.ops_mailbox.doorbell.at.as_u64(), 0x2004);
    assert_eq!(layout.mgmt_mailbox.submission.at.as_u64(), 0x1200);
    assert_eq!(layout.mgmt_mailbox.completion.at.as_u64(), 0x1900);
    assert_eq!(layout.mgmt_mailbox.doorbell.at.as_u64(), 0x2000);
    assert_eq!((layout.dma.max_nodes, layout.dma.max_node_bytes), (8, 128 << 20));
    assert_eq!((layout.dma.align_bytes, layout.dma.p2p), (8, true));
}

#[test]
fn the_crc_is_the_vendors() {
    let json = json(File::Dir);
    let check = text(&json["crc"], "check_of_123456789");
    assert_eq!(format!("{:#010x}", crc32fast::hash(b"123456789")), check);
}

#[test]
fn corrupt_images_are_refused() {
    let json = json(File::Dir);
    let negative = array(&json["negative"]);
    assert_eq!(negative.len(), 1);
    for image in negative {
        let bytes = hex(text(image, "bytes"));
        match text(image, "name") {
            "ops_dir_bad_crc" => {
                let parsed = OpsDir::parse(&bytes, &BARS);
                assert!(matches!(parsed, Err(DirError::Crc { .. })), "{parsed:?}");
            }
            other => panic!("image {other} has no Rust type"),
        }
    }
}
