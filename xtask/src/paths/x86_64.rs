//! What x86-64 code is made of.

use anyhow::{Result, ensure};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess};

use super::{Made, Next};

/// Counts the instructions of `code`, which lies at `start`, up to the first return.
///
/// # Errors
/// When there is none before a jump or within the longest path's length.
pub(super) fn count(code: &[u8], start: u64, made: &mut Made) -> Result<()> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    made.until_return(|made| {
        let instruction = decoder.decode();
        ensure!(!instruction.is_invalid(), "no instruction at {:#x}", instruction.ip());
        Ok(add(made, &instruction, &mut factory))
    })
}

/// Counts what an instruction is made of.
fn add(made: &mut Made, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Next {
    let flow = instruction.flow_control();
    made.branches += usize::from(flow == FlowControl::ConditionalBranch);
    made.calls +=
        usize::from(matches!(flow, FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt));
    made.locked += usize::from(instruction.has_lock_prefix());
    // What a return reads of the stack is no load of the path's own.
    if flow == FlowControl::Return {
        return Next::Returns;
    }
    for memory in factory.info(instruction).used_memory() {
        let access = memory.access();
        made.loads +=
            usize::from(matches!(access, OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead));
        made.stores += usize::from(matches!(
            access,
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        ));
    }
    if flow == FlowControl::UnconditionalBranch { Next::Jumps } else { Next::Continues }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_stores_branches_and_locks_are_told_apart() {
        // mov rax,[rdi]; mov [rdi],rax; add qword [rdi],1; lock inc dword [rdi]; je +0; call rax; ret
        let code = [
            0x48, 0x8b, 0x07, 0x48, 0x89, 0x07, 0x48, 0x83, 0x07, 0x01, 0xf0, 0xff, 0x07, 0x74, 0x00, 0xff,
            0xd0, 0xc3,
        ];
        let mut made = Made::default();
        count(&code, 0, &mut made).expect("a return");
        // A call stores its return address.
        let expected = Made { instructions: 7, branches: 1, loads: 3, stores: 4, calls: 1, locked: 1 };
        assert_eq!(made, expected);
        assert!(count(&[0xeb, 0x00, 0xc3], 0, &mut Made::default()).is_err(), "it jumps");
        assert!(count(&[0x90, 0x90], 0, &mut Made::default()).is_err(), "it has no return");
    }
}
