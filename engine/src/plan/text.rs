//! A plan as text, to be read by people and tests.

use std::fmt;

use super::{Combine, Command, Handed, Length, Plan, View, When, Word};

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U32(value) => write!(f, "{value}"),
            Self::F32(value) => write!(f, "{value:?}"),
            Self::Rows(1) => f.write_str("rows"),
            Self::Rows(factor) => write!(f, "rows*{factor}"),
            Self::RowGroups(size, factor) => write!(f, "ceil(rows/{size})*{factor}"),
            Self::BatchRows(1) => f.write_str("batch_rows"),
            Self::BatchRows(factor) => write!(f, "batch_rows*{factor}"),
            Self::IsFirst(factor) => write!(f, "{factor} if first"),
            Self::IsLater(factor) => write!(f, "{factor} if later"),
            Self::IsLast(factor) => write!(f, "{factor} if last"),
            Self::FirstRow => f.write_str("first_row"),
            Self::LossScale(output) => write!(f, "loss_scale[{output}]"),
            Self::GradientScale => f.write_str("gradient_scale"),
            Self::GradientUnscale => f.write_str("1/gradient_scale"),
            Self::Hyper(index) => write!(f, "hyper[{index}]"),
            Self::Seed => f.write_str("seed"),
            Self::Step => f.write_str("step"),
            Self::Update => f.write_str("update"),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.per_row, self.fixed) {
            (0, fixed) => write!(f, "{fixed}"),
            (per_row, 0) => write!(f, "rows*{per_row}"),
            (per_row, fixed) => write!(f, "rows*{per_row}+{fixed}"),
        }
    }
}

impl Plan {
    fn view_text(&self, view: &View) -> String {
        let name = &self.get(view.buffer).name;
        match view.offset {
            0 => name.clone(),
            offset => format!("{name}+{offset}"),
        }
    }

    fn views_text(&self, views: &[View]) -> String {
        views.iter().map(|view| self.view_text(view)).collect::<Vec<_>>().join(", ")
    }

    fn command_text(&self, command: &Command) -> String {
        match command {
            Command::Dispatch(dispatch) => {
                let fields = dispatch.kernel.params.iter().zip(&dispatch.params);
                let params = fields.map(|(field, word)| format!("{}={word}", field.name));
                let constants = dispatch.constants.iter().map(|(name, value)| format!("{name}={value}"));
                let params = params.chain(constants).collect::<Vec<_>>().join(" ");
                let name = dispatch.kernel.name();
                let (inputs, outputs) = (self.views_text(&dispatch.inputs), self.views_text(&dispatch.outputs));
                format!("{}: {name}({inputs}) -> {outputs} [{params}]", dispatch.node)
            }
            Command::Exchange(exchange) => {
                let combine = match exchange.combine {
                    Combine::Sum => "sum".to_owned(),
                    Combine::Moments { count_per_row } => format!("moments of rows*{count_per_row}"),
                    Combine::HandOver(Handed::Value(tensor)) => format!("values of tensor {tensor}"),
                    Combine::HandOver(Handed::Gradient(tensor)) => format!("gradient of tensor {tensor}"),
                };
                let when = match exchange.when {
                    When::NextCommand => "before the next command",
                    When::Update => "before the update",
                    When::LastUpdate => "before the update, if last",
                };
                let (view, len) = (self.view_text(&exchange.view), exchange.view.len);
                let halves = exchange.halves.map(|sent| format!(" as {}", self.view_text(&sent))).unwrap_or_default();
                format!("exchange {view}{halves} ({len}): {combine}, {when}")
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pass, commands) in &self.passes {
            writeln!(f, "{pass:?}")?;
            for command in commands {
                writeln!(f, "  {}", self.command_text(command))?;
            }
        }
        Ok(())
    }
}
