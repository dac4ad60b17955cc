//! Submissions: payloads of forms that passed every check.

use bytes::Bytes;
use letterbox_broker::{FormSubmission, Receipt};
use letterbox_common::{form::TokenHash, ids::RunId};

use super::item::IntakeItem;
use crate::{admission::LiveRelease, claims::SubmissionKey};

/// A validated submission.
#[derive(Clone)]
pub(crate) struct Submission {
    /// The release that it was validated against.
    pub(crate) release: LiveRelease,
    pub(crate) key: SubmissionKey,
    pub(crate) payload: Bytes,
    pub(crate) receipt: Receipt,
}

impl IntakeItem for Submission {
    type Door = TokenHash;
    type Entry = FormSubmission;

    fn key(&self) -> SubmissionKey {
        self.key
    }

    fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    fn length(&self) -> usize {
        self.payload.len()
    }

    fn into_entry(self, id: RunId) -> (FormSubmission, Bytes) {
        let LiveRelease {
            workspace,
            workflow,
            release,
        } = self.release;
        let entry = FormSubmission {
            run: id,
            workspace,
            workflow,
            release,
            key: Some(self.key.hash),
            receipt: self.receipt,
        };
        (entry, self.payload)
    }
}
