//! Memory of a connection. It is acquired from the session's share before it is allocated; if too little is left, the client
//! waits.

use std::pin::pin;

use tokio::io::{AsyncRead, AsyncWrite};

use super::interrupts::Interrupt;
use super::{Conversation, Ended};
use crate::base::turn;
use crate::service::Dropped;

/// Bytes that one argument of a command takes while it runs: its position, the handle of its copy, its entries in
/// sets and lists.
const ARGUMENT_BYTES: usize = 128;

/// Bytes that one operation of the store takes while it runs.
const OPERATION_BYTES: usize = 512;

/// Operations of the store that one batch runs at once.
const OPERATIONS_MAX: usize = 1024;

/// Commands of a batch while memory is scarce. Memory held by batches that wait for more must leave room for the
/// answers of some of them, because otherwise all of them wait in vain.
const BATCH_MAX_IF_TIGHT: usize = 64;

/// Bytes of a connection above which freeing them may take longer than a turn, because the allocator returns them to the kernel.
pub(super) const LARGE_BYTES: usize = 4 << 20;

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<'_, S> {
    /// Returns the limit of commands in the next batch.
    pub(super) fn batch_max(&self) -> usize {
        let most = self.limits().pipeline_max;
        if self.service.budget.is_tight() { most.min(BATCH_MAX_IF_TIGHT) } else { most }
    }

    /// Returns the bytes that the connection holds between steps.
    pub(super) fn held(&self) -> usize {
        let buffers = self.transport.held_bytes() + self.commands.held_bytes() + self.parser.held_bytes();
        buffers + self.session.kept_bytes()
    }

    /// Returns the bytes that a batch takes while it runs, for commands that arrived in `data_bytes`.
    pub(super) fn batch_bytes(&self, data_bytes: usize) -> usize {
        let arguments = self.commands.arguments_len();
        let copies = self.service.compressed_bytes(data_bytes);
        let operations = arguments.min(OPERATIONS_MAX) * OPERATION_BYTES;
        data_bytes + copies + arguments * ARGUMENT_BYTES + operations
    }

    /// Waits for memory, and writes answers meanwhile. Returns false if the server ends the conversation.
    pub(super) async fn wait_for_memory(&mut self, bytes: usize) -> Result<bool, Ended> {
        loop {
            let interrupt = {
                let mut hold = pin!(self.session.hold(bytes));
                loop {
                    tokio::select! {
                        biased;
                        held = &mut hold => {
                            held.map_err(|_| Ended::Dropped(Dropped::Memory))?;
                            return Ok(true);
                        }
                        exchanged = self.transport.exchange(false, self.service), if self.transport.replies.unsent_bytes() > 0 => {
                            exchanged?;
                            turn::pause().await;
                        }
                        interrupt = &mut self.interrupts => break interrupt.unwrap_or(Interrupt::Stopped),
                    }
                }
            };
            if !self.goes_on_after(interrupt)? {
                return Ok(false);
            }
        }
    }
}
