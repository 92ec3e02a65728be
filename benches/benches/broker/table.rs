//! What was measured, what was required, and whether it was met.

use serde_json::{Map, Value, json};

struct Row {
    name: String,
    unit: &'static str,
    measured: f64,
    required: f64,
    /// The requirement is an upper bound.
    at_most: bool,
    yardstick: (&'static str, f64),
}

impl Row {
    fn is_met(&self) -> bool {
        if self.at_most {
            self.measured <= self.required
        } else {
            self.measured >= self.required
        }
    }
}

/// Collects rows and notes.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
    notes: Map<String, Value>,
    failures: Vec<(String, String)>,
}

impl Table {
    pub(crate) fn at_least(
        &mut self,
        name: &str,
        unit: &'static str,
        measured: f64,
        required: f64,
        yardstick: &'static str,
        value: f64,
    ) {
        self.add(name, unit, measured, required, false, (yardstick, value));
    }

    pub(crate) fn at_most(
        &mut self,
        name: &str,
        unit: &'static str,
        measured: f64,
        required: f64,
        yardstick: &'static str,
        value: f64,
    ) {
        self.add(name, unit, measured, required, true, (yardstick, value));
    }

    fn add(
        &mut self,
        name: &str,
        unit: &'static str,
        measured: f64,
        required: f64,
        at_most: bool,
        yardstick: (&'static str, f64),
    ) {
        let row = Row {
            name: name.to_owned(),
            unit,
            measured,
            required,
            at_most,
            yardstick,
        };
        // Shown as it comes: a run takes minutes.
        eprintln!("{}", line(&row));
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, name: &str, value: Value) {
        self.notes.insert(name.to_owned(), value);
    }

    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        eprintln!("{name}: {error:#}");
        self.failures.push((name.to_owned(), format!("{error:#}")));
    }

    pub(crate) fn print(&self) {
        println!(
            "\n{:<48} {:>14} {:>16} {:>7}  {:<8} yardstick",
            "", "measured", "required", "ratio", ""
        );
        for row in &self.rows {
            println!("{}", line(row));
        }
        for (name, error) in &self.failures {
            println!("{name}: not measured: {error}");
        }
        println!();
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
                json!({
                    "name": row.name, "unit": row.unit, "measured": finite(row.measured), "required": finite(row.required),
                    "at_most": row.at_most, "met": row.is_met(), "yardstick": row.yardstick.0, "yardstick_value": finite(row.yardstick.1),
                })
            })
            .collect();
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(|(name, error)| json!({ "name": name, "error": error }))
            .collect();
        json!({ "bench": "broker", "rows": rows, "notes": self.notes, "failures": failures })
    }
}

fn line(row: &Row) -> String {
    let figure = |value: f64| {
        if value >= 1000.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.2}")
        }
    };
    let bound = if row.at_most { "<=" } else { ">=" };
    let ratio = if row.required == 0.0 {
        f64::NAN
    } else {
        row.measured / row.required
    };
    let yardstick = if row.yardstick.1.is_finite() {
        format!("{} {}", row.yardstick.0, figure(row.yardstick.1))
    } else {
        String::new()
    };
    format!(
        "{:<48} {:>14} {:>16} {:>7.2}  {:<8} {}",
        row.name,
        format!("{} {}", figure(row.measured), row.unit).trim_end(),
        format!("{bound} {}", figure(row.required)),
        ratio,
        if row.is_met() { "met" } else { "NOT MET" },
        yardstick
    )
}
