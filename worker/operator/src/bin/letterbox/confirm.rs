//! Asking before something ends for good.

use std::io::{IsTerminal, Write, stderr, stdin};

use letterbox_operator::{LiveLink, Losing, Operator, escape};

use crate::{Failure, Result, times::to_second};

/// Says which links a move ends, and asks; does neither where none ends, or where `yes` was said
/// beforehand.
pub(crate) async fn confirm(operator: &Operator, of: Losing, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    let links = operator.live_links(of).await?;
    if links.is_empty() {
        return Ok(());
    }
    ask(question(&links))
}

/// Says what a command destroys, and asks; not where `yes` was said beforehand.
pub(crate) fn confirm_loss(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    ask(format!("this can't be undone: {what}"))
}

/// Asks about this.
pub(crate) fn ask(text: String) -> Result<()> {
    if !stdin().is_terminal() {
        return Err(Failure::NotConfirmed(text));
    }
    let mut said = String::new();
    let asked = write!(stderr(), "{text}\nGo on? [y/N] ").and_then(|()| stderr().flush());
    let read = asked.and_then(|()| stdin().read_line(&mut said));
    if read.is_ok() && matches!(said.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::Declined)
    }
}

fn question(links: &[LiveLink]) -> String {
    let links = links.iter().map(|link| {
        let name = escape::line(&link.row.workflow_name);
        let workflow = link.row.workflow_id;
        let made = to_second(link.row.created_at);
        let usage = link.usage();
        format!("\n  the form link of {name} ({workflow}), made {made}, {usage}")
    });
    let links = links.collect::<String>();
    format!("this ends for good, for everybody who has it:{links}")
}
