//! Parts of a page: tables, bars.

use super::text::{escaped, percent, write_to};

/// A table that scrolls by itself where it is wide. Cells are text, headers say whether a column holds numbers; rows may
/// be marked.
pub fn table(
    name: &str,
    header: impl IntoIterator<Item = (impl AsRef<str>, bool)>,
    rows: Vec<(Vec<String>, bool)>,
) -> String {
    let header: Vec<_> = header.into_iter().collect();
    let class = |is_number: bool| if is_number { " class=\"n\"" } else { "" };
    let mut html = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>",
        escaped(name)
    );
    for (text, is_number) in &header {
        write_to(&mut html, format_args!("<th scope=\"col\"{}>{}</th>", class(*is_number), escaped(text.as_ref())));
    }
    html.push_str("</tr></thead><tbody>\n");
    for (cells, is_marked) in rows {
        html.push_str(if is_marked { "<tr class=\"best\">" } else { "<tr>" });
        for (at, (cell, (_, is_number))) in cells.iter().zip(&header).enumerate() {
            let (class, text) = (class(*is_number), escaped(cell));
            match at {
                0 => write_to(&mut html, format_args!("<th scope=\"row\"{class}>{text}</th>")),
                _ => write_to(&mut html, format_args!("<td{class}>{text}</td>")),
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// A bar in parts: names, parts of the whole.
pub fn bar(name: &str, parts: &[(String, f64)]) -> String {
    let told: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", percent(*part))).collect();
    let mut html =
        format!("<div class=\"bar\" role=\"img\" aria-label=\"{}: {}\">", escaped(name), escaped(&told.join(", ")));
    for (at, (_, part)) in parts.iter().enumerate().filter(|(_, (_, part))| *part > 0.0) {
        write_to(&mut html, format_args!("<span class=\"c{}\" style=\"width:{:.3}%\"></span>", at % 6, 100.0 * part));
    }
    html.push_str("</div>\n<p class=\"legend soft\">");
    for (at, text) in told.iter().enumerate() {
        let swatch = format!(
            "<svg viewBox=\"0 0 12 10\" class=\"swatch square c{}\" aria-hidden=\"true\"><path d=\"M0 5H12\"/></svg>",
            at % 6
        );
        write_to(&mut html, format_args!("<span>{swatch}{}</span>", escaped(text)));
    }
    html.push_str("</p>\n");
    html
}
