//! What environment calls do to caches. Spec: device interface §14; the layout of the arguments is
//! that of the vendor's cache-operation library.

use super::posted::WriteBack;
use super::{Weak, minion_of, shire_of};
use crate::machine::chip::Core;
use crate::machine::hart::Hart;

const EVICT_WAYS: u64 = 1;
const FLUSH_WAYS: u64 = 2;
const EVICT_L1: u64 = 6;
const EVICT_L1_AND_L2: u64 = 11;

impl Weak {
    /// Does the part of an environment call that concerns caches, at once. Invalidation, bank
    /// operations, locks and the legacy calls have no effect here.
    pub(crate) fn environment_call(&mut self, core: &Core<'_>, hart: &Hart) {
        let (number, first, second) = (hart.x[10], hart.x[11], hart.x[12]);
        let minion = minion_of(hart.id);
        match number {
            EVICT_WAYS | FLUSH_WAYS => {
                let kind = if number == EVICT_WAYS { WriteBack::Evict } else { WriteBack::Flush };
                self.wait_for_lines(core, hart.id);
                for line in self.named_ways(hart, first) {
                    self.write_back(core, hart.id, line, kind, first >> 58 & 3);
                }
            }
            EVICT_L1 => {
                self.wait_for_lines(core, hart.id);
                let lines: Vec<u64> = self.l1(minion).numbers().collect();
                for line in lines {
                    self.write_back(core, hart.id, line, WriteBack::Evict, second & 3);
                }
            }
            EVICT_L1_AND_L2 => {
                self.wait_for_lines(core, hart.id);
                let lines: Vec<u64> = self.l1(minion).numbers().collect();
                for line in lines {
                    self.write_back_l1(core, minion, line, WriteBack::Evict);
                }
                let lines: Vec<u64> = self.l2(shire_of(hart.id)).numbers().collect();
                for line in lines {
                    self.write_back_l2(core, shire_of(hart.id), line, WriteBack::Evict);
                }
            }
            _ => {}
        }
    }

    /// The lines that a call names by set and way. Bit 63 of the operand: use the tensor mask; bits
    /// 17 to 14: set; 7 and 6: way; 3 to 0: one less than their number. Sets count up first.
    fn named_ways(&self, hart: &Hart, operand: u64) -> Vec<u64> {
        let cache = self.l1(minion_of(hart.id));
        let (set, way) = ((operand >> 14 & 15) as usize, (operand >> 6 & 3) as usize);
        let masked = operand >> 63 != 0;
        let named = (0..=(operand & 15) as usize)
            .filter(|bit| !masked || hart.tensor_mask >> bit & 1 != 0)
            .map(|step| cache.slot(set + step, way + (set + step) / cache.sets()));
        named.filter_map(|slot| cache.number(slot)).collect()
    }
}
