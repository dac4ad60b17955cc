//! `letterbox account …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::{AccountId, UserId},
    sealing::{SealedColumn, Secret},
};
use letterbox_operator::{Named, NewAccount, bearer};
use url::Url;

use crate::{
    Failure, Output,
    confirm::confirm_loss,
    file,
    in_workspace::InWorkspace,
    output,
    settings::{CliSettings, sealing},
};

const COLUMNS: [&str; 5] = [
    "account_id",
    "name",
    "user_id",
    "base_url",
    "disconnected_at",
];

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Connect an account that the user's workflows may call; its credential is sealed at once
    Connect {
        #[command(flatten)]
        workspace: InWorkspace,
        /// The user whose workflows may use it
        #[arg(long)]
        user: Named<UserId>,
        /// The name by which actions refer to it
        #[arg(long)]
        name: String,
        /// The URL that every request begins with; actions can't leave it
        #[arg(long)]
        base_url: Url,
        #[command(flatten)]
        credential: Credential,
        /// Name of the header that carries the credential instead of 'Authorization'
        #[arg(long, value_name = "NAME", requires = "value_file")]
        header: Option<String>,
    },
    /// List the accounts of a workspace
    List {
        #[command(flatten)]
        workspace: InWorkspace,
    },
    /// Give an account another credential; what waits for an approval or a retry goes on with it
    Rotate {
        /// Id or name
        account: Named<AccountId>,
        #[command(flatten)]
        credential: Credential,
    },
    /// Disconnect an account; its credential is destroyed
    Disconnect {
        account_id: AccountId,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(settings: &CliSettings, verb: AccountCommand) -> Result<Output, Failure> {
    Ok(match verb {
        AccountCommand::Connect {
            workspace,
            user,
            name,
            base_url,
            credential,
            header,
        } => {
            let credential = credential.read()?;
            let header = header.unwrap_or_else(|| "authorization".to_owned());
            let operator = settings.operator().await?;
            let keys = sealing(&operator, SealedColumn::AccountCredential).await?;
            let account = NewAccount {
                workspace: workspace.id_to_grant(&operator).await?,
                user: operator.id(&user).await?,
                name,
                base_url,
                header,
                credential,
            };
            let connected = operator.connect_account(&*keys, &account).await?;
            let mut told = output::value(&connected);
            if let Some(warning) = connected.warning() {
                told["warnings"] = [warning].into();
            }
            Output::One(told)
        }
        AccountCommand::List { workspace } => {
            let operator = settings.operator().await?;
            let accounts = operator.accounts(workspace.id(&operator).await?).await?;
            Output::many(&accounts, &COLUMNS)
        }
        AccountCommand::Rotate {
            account,
            credential,
        } => {
            let credential = credential.read()?;
            let operator = settings.operator().await?;
            let keys = sealing(&operator, SealedColumn::AccountCredential).await?;
            let account = operator.id(&account).await?;
            Output::one(
                &operator
                    .rotate_account(&*keys, account, &credential)
                    .await?,
            )
        }
        AccountCommand::Disconnect { account_id, yes } => {
            confirm_loss("the credential is destroyed", yes)?;
            let operator = settings.operator().await?;
            Output::one(&operator.disconnect_account(account_id).await?)
        }
    })
}

/// Where a credential is read from.
#[derive(Args)]
pub(crate) struct Credential {
    /// A file with a token, sent as 'Authorization: Bearer ...'; - reads standard input
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "value_file",
        conflicts_with = "value_file"
    )]
    bearer_file: Option<PathBuf>,
    /// A file with the value of the account's header
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,
}

impl Credential {
    /// The value of the header that carries it.
    fn read(&self) -> Result<Secret, Failure> {
        let read = |file| Ok::<_, Failure>(file::read(file)?.trim_ascii().to_vec());
        Ok(match (&self.bearer_file, &self.value_file) {
            (Some(file), _) => bearer(&read(file)?),
            (None, Some(file)) => Secret::new(read(file)?),
            (None, None) => Secret::new(Vec::new()),
        })
    }
}
