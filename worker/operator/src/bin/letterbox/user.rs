//! `letterbox user …`

use clap::{Args, Subcommand};
use letterbox_common::ids::UserId;
use letterbox_operator::{Losing, Named};
use serde_json::json;

use crate::{Output, Result, confirm::confirm, settings::CliSettings};

const ISSUER: &str = "issuer users";

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Create a user
    Create {
        #[arg(long)]
        email: String,
        #[arg(long)]
        name: String,
    },
    /// List all users
    List {
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Take a user's rights in all workspaces: for somebody who leaves
    ///
    /// Workflows that the user owns take no more submissions; give them to somebody else with
    /// 'workflow transfer'. 'member set' gives rights back.
    Deactivate {
        /// Id or e-mail address
        user: Named<UserId>,
        /// Do not ask for confirmation before form links end
        #[arg(long)]
        yes: bool,
    },
    /// Print a link with which a user signs in to the desk, within ten minutes and once
    SignInLink(OfUser),
    /// End a user's sessions and sign-in links at the desk, and unbind the user from issuers
    SignOut(OfUser),
    /// Trust an OpenID Connect issuer: users sign in to the desk by their verified e-mail address
    TrustIssuer {
        /// The URL by which the issuer calls itself
        #[arg(long, value_name = "URL")]
        issuer: String,
    },
    /// Stop trusting an issuer; sessions that have begun go on
    DistrustIssuer {
        #[arg(long, value_name = "URL")]
        issuer: String,
    },
    /// List the issuers that are trusted, with how many users each knows
    Issuers,
    /// Unbind a user from an issuer, after they got another account there: they sign in by a link
    /// once, and then with the issuer in the same browser
    UnbindIssuer {
        /// Id or e-mail address
        user: Named<UserId>,
        #[arg(long, value_name = "URL")]
        issuer: String,
    },
    /// Show a user, with their accounts at issuers
    Show(OfUser),
}

/// Names a user.
#[derive(Args)]
pub(crate) struct OfUser {
    /// Id or e-mail address
    user: Named<UserId>,
}

pub(crate) async fn run(settings: &CliSettings, verb: UserCommand) -> Result<Output> {
    let operator = &settings.operator().await?;
    Ok(match verb {
        UserCommand::Create { email, name } => {
            Output::one(&operator.create_user(&email, &name).await?)
        }
        UserCommand::List { limit } => Output::many(
            &operator.users(limit).await?,
            "user_id email name created_at",
        ),
        UserCommand::Deactivate { user, yes } => {
            let user = operator.id(&user).await?;
            confirm(operator, Losing::User(user), yes).await?;
            Output::many(
                &operator.deactivate_user(user).await?,
                "workspace_id email role deactivated_at",
            )
        }
        UserCommand::SignInLink(OfUser { user }) => {
            let user = operator.id(&user).await?;
            let link = operator.make_sign_in_link(user).await?;
            Output::One(json!({
                "url": settings.addresses.sign_in_url(link.token.expose()),
                "user_id": link.user_id,
                "expires_at": link.expires_at,
            }))
        }
        UserCommand::SignOut(OfUser { user }) => {
            Output::one(&operator.sign_out_user(operator.id(&user).await?).await?)
        }
        UserCommand::TrustIssuer { issuer } => {
            Output::many(&operator.trust_issuer(&issuer).await?, ISSUER)
        }
        UserCommand::DistrustIssuer { issuer } => {
            Output::many(&operator.distrust_issuer(&issuer).await?, ISSUER)
        }
        UserCommand::Issuers => Output::many(&operator.issuers().await?, ISSUER),
        UserCommand::UnbindIssuer { user, issuer } => {
            let user = operator.id(&user).await?;
            operator.unbind_issuer(&issuer, user).await?;
            Output::one(&operator.user(user).await?)
        }
        UserCommand::Show(OfUser { user }) => {
            Output::one(&operator.user_detail(operator.id(&user).await?).await?)
        }
    })
}
