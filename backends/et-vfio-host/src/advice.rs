//! Texts for configuration files of the host.

use crate::Bdf;

/// Returns udev rules that give a card's nodes to a user and a group on every boot.
///
/// `group_node` is the name of the IOMMU group's node: `12`, or `noiommu-12`. User and group are
/// names or numbers. A group's node has no parent that a rule could name, and its number may change
/// when hardware is added; the device's own node is found by the address of the card.
#[must_use]
pub fn udev_rules(bdf: Bdf, group_node: &str, user: &str, group: &str) -> String {
    let owner = format!("OWNER=\"{user}\", GROUP=\"{group}\", MODE=\"0660\"");
    format!(
        "SUBSYSTEM==\"vfio-dev\", KERNELS==\"{bdf}\", {owner}\n\
         SUBSYSTEM==\"vfio\", KERNEL==\"{group_node}\", {owner}\n\
         SUBSYSTEM==\"misc\", KERNEL==\"iommu\", GROUP=\"{group}\", MODE=\"0660\"\n"
    )
}

/// Returns the line of `/etc/security/limits.d/` that lets a user lock memory.
#[must_use]
pub fn memlock_limits_d(user: &str, bytes: u64) -> String {
    format!("{user} - memlock {}", bytes.div_ceil(1024))
}

/// Returns the line of a systemd unit's `[Service]` section that lets it lock memory.
#[must_use]
pub fn memlock_systemd(bytes: u64) -> String {
    format!("LimitMEMLOCK={bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_card_the_group_and_iommufd() {
        let rules = udev_rules("01:00.0".parse().unwrap(), "12", "ann", "et");
        let expected = "SUBSYSTEM==\"vfio-dev\", KERNELS==\"0000:01:00.0\", OWNER=\"ann\", GROUP=\"et\", MODE=\"0660\"";
        assert_eq!(rules.lines().next(), Some(expected));
        assert!(rules.contains("KERNEL==\"12\"") && rules.contains("KERNEL==\"iommu\""));
        assert_eq!(rules.lines().count(), 3);
    }

    #[test]
    fn limits_are_rounded_up() {
        assert_eq!(memlock_limits_d("ann", 1025), "ann - memlock 2");
        assert_eq!(memlock_systemd(4096), "LimitMEMLOCK=4096");
    }
}
