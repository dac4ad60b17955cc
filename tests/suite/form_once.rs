//! One answer counts once, and is not lost, whatever becomes of its page: reloads, copies of the
//! tab, outages, links that die.

use letterbox_tests::{Proxy, World};
use serde_json::json;

use crate::{
    browser::{Browser, Engine, in_every_browser},
    site::Site,
};

in_every_browser! {
    a_reload_counts_once_and_loses_nothing,
    what_was_written_to_a_dead_link_is_not_lost,
    a_duplicated_tab_counts_by_itself,
    what_was_recorded_unseen_counts_once,
    an_outage_is_waited_out_and_counts_once,
}

/// Whether what was written can be read, and not changed.
const LOCKED: &str = "[...document.querySelectorAll('#fields input:not([type=checkbox]), \
    #fields textarea')].map((one) => one.readOnly).join() === 'true,true,true,true'";

/// A page that is left while nobody knows whether its answer has arrived goes on with it, under the
/// same key: one run.
async fn a_reload_counts_once_and_loses_nothing(engine: Engine) {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let site = Site::of(world, &[("AMQP_URL", &broker.url)]).await;
    let _worker = site.world.worker().await;
    let form = site.form().await;
    let page = Browser::visiting(engine, &site, &form).await;
    page.fill_in("Your name", "Ada").await;
    page.fill_in("Message", "Not to be lost").await;
    page.page.refresh().await.unwrap();
    page.await_text("Contact us").await;
    assert_eq!(page.value("Message").await, "Not to be lost");
    page.fill_in("E-mail address", "ada@example.com").await;
    page.tick("I accept the terms").await;
    broker.cut();
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    page.page.refresh().await.unwrap();
    page.await_text("The service is not responding.").await;
    let locked = page.evaluate(LOCKED).await;
    assert_eq!(locked, true);
    broker.pass();
    site.gateway.await_ready().await;
    page.await_text("Thank you").await;
    site.world.await_runs(1).await;
    assert!(site.inputs().await[0].contains("Not to be lost"));
    let kept = page.evaluate("JSON.stringify(sessionStorage)").await;
    assert_eq!(kept, "{}", "nothing is kept that has arrived");

    // The next one is another one.
    page.visit(&site, &form).await;
    assert_eq!(page.value("Message").await, "");
    page.close().await;
}

/// The link dies while somebody writes: it can be copied, and a new link fills it in again.
async fn what_was_written_to_a_dead_link_is_not_lost(engine: Engine) {
    let site = Site::new().await;
    let form = site.form().await;
    let page = Browser::visiting(engine, &site, &form).await;
    page.answer("Ada").await;
    page.fill_in("Message", "Not to be lost").await;
    let second = site.world.relink(&form).await;
    page.press_for("Submit", "This form is not available").await;
    page.await_text("What you have written").await;
    page.await_text("Not to be lost").await;
    page.picture("desktop-dead-link").await;

    // The form of another workflow gets nothing of it, though it has the same words.
    page.visit(&site, &site.form().await).await;
    assert_eq!(page.value("Your name").await, "");

    // Also where the page was loaded again meanwhile.
    page.open(&site.link(&second)).await;
    page.await_text("have been filled in again").await;
    page.fill_in("Message", "Still not to be lost").await;
    let renewed = site.world.relink(&form).await;
    page.page.refresh().await.unwrap();
    page.await_text("This form is not available").await;
    page.await_text("Still not to be lost").await;

    page.open(&site.link(&renewed)).await;
    page.await_text("have been filled in again").await;
    for (label, value) in [("Your name", "Ada"), ("Message", "Still not to be lost")] {
        assert_eq!(page.value(label).await, value, "{label}");
    }
    page.close().await;
}

/// A tab that was duplicated is another answer, however alike it begins.
async fn a_duplicated_tab_counts_by_itself(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let form = site.form().await;
    let page = Browser::visiting(engine, &site, &form).await;
    page.answer("Ada").await;
    let first = page.page.window().await.unwrap();
    // A window that a page opens gets a copy of what its tab has stored.
    let opening = format!("window.open({})", json!(site.link(&form)));
    page.page.execute(&opening, Vec::new()).await.unwrap();
    page.switch_from(&first).await;
    page.await_text("Contact us").await;
    assert_eq!(page.value("Your name").await, "Ada", "a copy");
    page.fill_in("Your name", "Bob").await;
    page.press_for("Submit", "Thank you").await;
    page.page.switch_to_window(first).await.unwrap();
    page.press_for("Submit", "Thank you").await;
    site.world.await_runs(2).await;
    let inputs = site.inputs().await;
    let of_bob = inputs.iter().filter(|input| input.contains("Bob"));
    assert_eq!((of_bob.count(), inputs.len()), (1, 2));
    page.close().await;
}

/// Loses the answer to the next submission, which the service has; the page sends no other until
/// `window.passes`, or until it is loaded again.
async fn lose_an_answer(page: &Browser) {
    let losing = "const real = window.fetch; let isFirst = true; window.fetch = (url, options) => {
        if (!options.body || window.passes) return real(url, options);
        const lost = () => { throw new Error('lost'); };
        const sending = isFirst ? real(url, options) : Promise.resolve();
        isFirst = false;
        return sending.then(lost);
    }";
    page.page.execute(losing, Vec::new()).await.unwrap();
}

/// The service has recorded it, and the page does not know: whoever loads it again, in a copy of
/// the tab or behind a new link, sends the same under the same key.
async fn what_was_recorded_unseen_counts_once(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let form = site.form().await;
    let page = Browser::start(engine, 1280, 900).await;
    let first = page.page.window().await.unwrap();

    // Loaded again; and a copy of the tab, which goes on as well.
    page.visit(&site, &form).await;
    page.answer("Ada").await;
    lose_an_answer(&page).await;
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    let opening = format!("window.open({})", json!(site.link(&form)));
    page.page.execute(&opening, Vec::new()).await.unwrap();
    page.page.refresh().await.unwrap();
    page.await_text("Thank you").await;
    page.switch_from(&first).await;
    page.await_text("Thank you").await;
    site.world.assert_rows("form_submissions", 1).await;
    page.page.switch_to_window(first).await.unwrap();

    // The link dies before the page knows.
    page.visit(&site, &form).await;
    page.answer("Ada").await;
    lose_an_answer(&page).await;
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    site.world.assert_rows("form_submissions", 2).await;
    let renewed = site.world.relink(&form).await;
    page.evaluate("window.passes = true").await;
    page.await_text("This form is not available").await;
    page.page.refresh().await.unwrap();
    page.await_text("What you have written").await;
    page.open(&site.link(&renewed)).await;
    page.await_text("If you send them unchanged, they count once.")
        .await;
    page.press_for("Submit", "Thank you").await;
    site.world.assert_rows("form_submissions", 2).await;
    site.world.await_runs(2).await;
    page.close().await;
}

/// While the service is away the page keeps the answers, locked, and sends the same again: one run.
async fn an_outage_is_waited_out_and_counts_once(engine: Engine) {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let site = Site::of(world, &[("AMQP_URL", &broker.url)]).await;
    let _worker = site.world.worker().await;
    let form = site.form().await;
    let desktop = Browser::start(engine, 1280, 900).await;
    desktop.visit(&site, &form).await;
    desktop.answer("Ada").await;
    desktop.picture("desktop").await;
    broker.cut();
    desktop.press("Submit").await;
    desktop.await_text("The service is not responding.").await;
    assert_eq!(desktop.evaluate(LOCKED).await, true);
    // The button that had the focus is gone.
    let focused = desktop.evaluate("document.activeElement.id").await;
    assert_eq!(focused, "progress");
    desktop.picture("desktop-outage").await;
    broker.pass();
    site.gateway.await_ready().await;
    desktop.await_text("Thank you").await;
    site.world.await_runs(1).await;
    desktop.close().await;
}
