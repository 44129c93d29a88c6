//! Drawings in SVG: a few shapes and texts, in black, white and grey.

use std::fmt::Write;

/// A drawing.
#[derive(Clone, Debug)]
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text stands by its place.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// Size of letters.
const LETTERS: f64 = 12.0;

impl Svg {
    /// An empty one.
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// A text.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.add(format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    /// A line through points; `dash` is of SVG, empty for none.
    pub fn line(&mut self, points: &[(f64, f64)], width: f64, dash: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="black" stroke-width="{width}" stroke-dasharray="{dash}"/>"#
        ));
    }

    /// The area between points, without a border.
    pub fn area(&mut self, points: &[(f64, f64)], fill: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(r#"<polygon points="{}" fill="{fill}"/>"#, points.join(" ")));
    }

    /// A rectangle from its upper left.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="black"/>"#
        ));
    }

    /// A mark at a point; each number has its own form.
    pub fn mark(&mut self, (x, y): (f64, f64), number: usize) {
        const R: f64 = 3.5;
        let fill = if number.is_multiple_of(2) { "black" } else { "white" };
        match number % 3 {
            0 => self.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{R}" fill="{fill}" stroke="black"/>"#)),
            1 => self.rectangle((x - R, y - R), (2.0 * R, 2.0 * R), fill),
            _ => {
                let (top, bottom, left, right) = (y - R - 1.0, y + R, x - R - 1.0, x + R + 1.0);
                self.add(format_args!(
                    r#"<polygon points="{x:.1},{top:.1} {left:.1},{bottom:.1} {right:.1},{bottom:.1}" fill="{fill}" stroke="black"/>"#
                ));
            }
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The file.
    pub fn file(&self) -> String {
        let Self { body, width, height } = self;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="{LETTERS}">
<rect width="{width}" height="{height}" fill="white"/>
{body}</svg>
"#
        )
    }
}
