//! One route: where it is, what it takes and gives, and how it is served. The router and the document are both made
//! of these, so neither can say what the other doesn't.

use crate::app::{App, apart};
use crate::input::{self, Input, Shape};
use crate::life::{Life, Phase};
use crate::refusal::{Refusal, json};
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use farshell_engine::Kind;
use farshell_engine::backend::BoxFuture;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;

/// Serves a request.
pub(crate) type Handler =
    Arc<dyn Fn(Arc<App>, Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A path and a method.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// As the document writes it: `{name}` stands for one part.
    pub(crate) path: &'static str,
    /// Unique; what generated clients call it.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Kinds of error besides those that every route has.
    pub(crate) errors: &'static [Kind],
    pub(crate) status: StatusCode,
    /// Names of the types, for people.
    pub(crate) takes: Option<String>,
    pub(crate) gives: String,
    pub(crate) describe: fn(&mut SchemaGenerator) -> Described,
    pub(crate) handler: Handler,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// What the document says about a route's input and output.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) input: Shape,
    pub(crate) output: Option<Value>,
    /// Added to the operation as they are.
    pub(crate) more: Vec<(&'static str, Value)>,
}

/// What becomes of a call when its caller goes away, or the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// What was begun is finished. A server that stops waits for it, but not for long.
    Finish,
    /// It may have to wait for a person. Until it has begun it ends with its caller; from then on the keeper sees to
    /// its end.
    Begin,
    /// Only looks: it ends with its caller, and at once when the server stops.
    Poll,
}

impl Route {
    pub(crate) fn new<I, O, F, Fut>(
        method: Method,
        (path, name): (&'static str, &'static str),
        summary: &'static str,
        manner: Manner,
        call: F,
    ) -> Self
    where
        I: Input,
        O: Serialize + JsonSchema + Send + 'static,
        F: Fn(Arc<App>, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Refusal>> + Send + 'static,
    {
        // The status may still be changed: it travels with the request.
        let handler: Handler = Arc::new(move |app, request: Request<Body>| {
            let call = call.clone();
            Box::pin(async move {
                let status = request.extensions().get::<Success>().map_or(StatusCode::OK, |s| s.0);
                let answer = match input::read::<I>(request).await {
                    Ok(input) => perform(&app.life, manner, call(Arc::clone(&app), input)).await,
                    Err(refusal) => Err(refusal),
                };
                answer.map_or_else(Refusal::response, |output| json(status, &output))
            })
        });
        let takes = {
            let mut shape = Shape::default();
            I::describe(&mut SchemaGenerator::default(), &mut shape);
            shape.name
        };
        Self {
            method,
            path,
            name,
            summary,
            errors: &[],
            status: StatusCode::OK,
            takes,
            gives: O::schema_name().into(),
            describe: describe::<I, O>,
            handler,
        }
    }

    pub(crate) fn errors(mut self, errors: &'static [Kind]) -> Self {
        self.errors = errors;
        self
    }

    pub(crate) fn created(mut self) -> Self {
        self.status = StatusCode::CREATED;
        self
    }
}

/// The status of a success.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Success(pub(crate) StatusCode);

fn describe<I: Input, O: JsonSchema>(schemas: &mut SchemaGenerator) -> Described {
    let mut input = Shape::default();
    I::describe(schemas, &mut input);
    Described { input, output: Some(schemas.subschema_for::<O>().to_value()), more: Vec::new() }
}

/// Does the work in the given manner.
pub(crate) async fn perform<O: Send + 'static>(
    life: &Arc<Life>,
    manner: Manner,
    work: impl Future<Output = Result<O, Refusal>> + Send + 'static,
) -> Result<O, Refusal> {
    match manner {
        Manner::Finish => match apart(life, work).await {
            Ok(done) => done.unwrap_or_else(|| Err(Refusal::interrupted())),
            // The one who waits has a place where this is caught.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Refusal::interrupted()),
        },
        Manner::Begin => work.await,
        Manner::Poll => tokio::select! {
            done = work => done,
            () = life.reached(Phase::Stopping) => Err(Refusal::stopping()),
        },
    }
}
