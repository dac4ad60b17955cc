//! A form's payload that passed every check.

use bytes::Bytes;
use letterbox_broker::{Envelope, FormSubmission, Receipt};
use letterbox_common::{form::TokenHash, ids::RunId};

use super::IntakeItem;
use crate::{
    claims::SubmissionKey,
    forms::{KeyHash, LiveForm},
};

/// A validated payload.
pub(crate) struct Submission {
    pub(crate) form: LiveForm,
    pub(crate) key_sha256: KeyHash,
    pub(crate) token: TokenHash,
    pub(crate) payload: Bytes,
    pub(crate) receipt: Receipt,
}

impl IntakeItem for Submission {
    type Key = SubmissionKey;

    fn key(&self) -> SubmissionKey {
        let LiveForm {
            workspace,
            workflow,
            ..
        } = self.form;
        let (key_sha256, token) = (self.key_sha256, self.token);
        SubmissionKey {
            workspace,
            workflow,
            key_sha256,
            token,
        }
    }

    fn into_message(self, id: RunId) -> (Envelope, Bytes) {
        let LiveForm {
            workspace,
            workflow,
            release,
            ..
        } = self.form;
        let receipt = self.receipt;
        let submission = FormSubmission {
            run: id,
            workspace,
            workflow,
            release,
            receipt,
        };
        (Envelope::FormSubmission(submission), self.payload)
    }
}
