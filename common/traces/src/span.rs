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

/// A step of a trace, which ends when it is dropped.
pub struct Span(opentelemetry_sdk::trace::Span);

impl Span {
    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        opentelemetry::trace::Span::set_attribute(&mut self.0, KeyValue::new(key, value));
    }

    /// Marks the step as failed. `why` must not contain secrets.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        opentelemetry::trace::Span::set_status(&mut self.0, Status::error(why));
    }

    /// The W3C trace context of this span, for the steps that follow.
    pub fn traceparent(&self) -> String {
        context::format(opentelemetry::trace::Span::span_context(&self.0))
    }
}

/// Whether a collector is configured.
pub fn is_on() -> bool {
    export::provider().is_some()
}

/// Starts the first step of a new trace, linked to the caller's trace if that is known.
pub fn linked(
    kind: SpanKind,
    name: impl Into<Cow<'static, str>>,
    caller: Option<&str>,
) -> Option<Span> {
    let provider = export::provider()?;
    let links = caller.and_then(context::parse).into_iter().collect();
    Some(start(provider, kind, name.into(), &Context::new(), links))
}

/// Starts a step that follows another of the same trace; `None` if that is not sampled.
pub fn child(kind: SpanKind, name: impl Into<Cow<'static, str>>, parent: &str) -> Option<Span> {
    let provider = export::provider()?;
    let parent = context::parse(parent).filter(SpanContext::is_sampled)?;
    let within = Context::new().with_remote_span_context(parent);
    Some(start(provider, kind, name.into(), &within, Vec::new()))
}

/// Starts a step over many items, each with a context; `None` if none of them is sampled. `name` is
/// called only if a span starts.
pub fn batch<'c, N: Into<Cow<'static, str>>>(
    kind: SpanKind,
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
    kind: SpanKind,
    name: Cow<'static, str>,
    within: &Context,
    links: Vec<SpanContext>,
) -> Span {
    let links: Vec<Link> = links.into_iter().map(Link::with_context).collect();
    let builder = SpanBuilder::from_name(name)
        .with_kind(kind)
        .with_links(links);
    let tracer = provider.tracer("letterbox");
    Span(tracer.build_with_context(builder, within))
}
