//! JSON schemas, made from the types that are really read and written.

use crate::failure::Failure;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

fn of<T: JsonSchema>(contract: Contract) -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // Models read one level well, and references badly.
        settings.inline_subschemas = true;
        // What is left out when it is written is not required, at any depth.
        settings.contract = contract;
    });
    settings.into_generator().into_root_schema_for::<T>()
}

/// The schema of arguments.
pub(crate) fn input<T: JsonSchema>() -> Value {
    let mut schema = of::<T>(Contract::Deserialize).to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
        fields.remove("description");
    }
    schema
}

/// The schema of a result: that of the type, or of a failure. A failure has what there is of the rest, so nothing is
/// required.
pub(crate) fn output<T: JsonSchema>() -> Value {
    let mut schema = of::<T>(Contract::Serialize).to_value();
    let failure = of::<Failure>(Contract::Serialize).to_value();
    let Some(fields) = schema.as_object_mut() else { return schema };
    fields.remove("title");
    fields.remove("required");
    let properties = fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let (Some(own), Some(more)) = (properties.as_object_mut(), failure["properties"].as_object()) {
        for (name, property) in more {
            own.entry(name.clone()).or_insert_with(|| property.clone());
        }
    }
    schema
}
