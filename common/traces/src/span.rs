//! Spans: the steps of a trace. Each ends when it is dropped.

use std::borrow::Cow;

use opentelemetry::{
    Context, KeyValue, Value,
    trace::{
        Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer, TracerProvider,
    },
};
use opentelemetry_sdk::trace::SdkTracerProvider;

use crate::{context, export};

/// What a span is to others, as OpenTelemetry distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers a request.
    Server,
    /// Asks somebody else.
    Client,
    /// Publishes messages.
    Producer,
    /// Processes messages.
    Consumer,
    /// None of them.
    Internal,
}

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Client => Self::Client,
            Kind::Producer => Self::Producer,
            Kind::Consumer => Self::Consumer,
            Kind::Internal => Self::Internal,
        }
    }
}

/// A step of a trace, until it is dropped.
pub struct Span(opentelemetry_sdk::trace::Span);

impl Span {
    /// Says something about the step.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        opentelemetry::trace::Span::set_attribute(&mut self.0, KeyValue::new(key, value));
    }

    /// Says that the step failed, and in words without anything secret why.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        opentelemetry::trace::Span::set_status(&mut self.0, Status::error(why));
    }

    /// For what follows: its context as W3C writes it.
    #[must_use]
    pub fn traceparent(&self) -> String {
        context::format(opentelemetry::trace::Span::span_context(&self.0))
    }
}

/// Whether anybody wants traces.
#[must_use]
pub fn is_on() -> bool {
    export::provider().is_some()
}

/// The first step of a new trace, linked to that of whoever asked for it, if that is known.
#[must_use]
pub fn linked(
    kind: Kind,
    name: impl Into<Cow<'static, str>>,
    caller: Option<&str>,
) -> Option<Span> {
    let provider = export::provider()?;
    let links = caller.and_then(context::parse).into_iter().collect();
    Some(start(provider, kind, name.into(), &Context::new(), links))
}

/// A step that follows from another one, of the same trace; none where that is not sampled.
#[must_use]
pub fn child(kind: Kind, name: impl Into<Cow<'static, str>>, parent: &str) -> Option<Span> {
    let provider = export::provider()?;
    let parent = context::parse(parent).filter(SpanContext::is_sampled)?;
    let within = Context::new().with_remote_span_context(parent);
    Some(start(provider, kind, name.into(), &within, Vec::new()))
}

/// A step over many things at once, each of which has a context; none where none is sampled. `name`
/// is asked for only where it is needed.
#[must_use]
pub fn batch<'c, N: Into<Cow<'static, str>>>(
    kind: Kind,
    name: impl FnOnce() -> N,
    contexts: impl Iterator<Item = &'c str>,
) -> Option<Span> {
    let provider = export::provider()?;
    let sampled = contexts.filter_map(context::parse);
    let sampled: Vec<_> = sampled.filter(SpanContext::is_sampled).collect();
    let within = Context::new().with_remote_span_context(sampled.first()?.clone());
    Some(start(provider, kind, name().into(), &within, sampled))
}

fn start(
    provider: &SdkTracerProvider,
    kind: Kind,
    name: Cow<'static, str>,
    within: &Context,
    links: Vec<SpanContext>,
) -> Span {
    let links: Vec<Link> = links.into_iter().map(Link::with_context).collect();
    let builder = SpanBuilder::from_name(name)
        .with_kind(kind.into())
        .with_links(links);
    Span(
        provider
            .tracer("letterbox")
            .build_with_context(builder, within),
    )
}
