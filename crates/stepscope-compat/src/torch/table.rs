//! Table in the format of `torch.profiler`.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::averages::{KeyAverage, KeyAverages};

/// Unit of a table's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
}

impl TimeUnit {
    /// Parses `s`, `ms` or `us`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "us" => Self::Microseconds,
            _ => return None,
        })
    }
}

/// Format options of a table. The defaults are torch's.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// Maximum number of rows; `None` for all.
    pub row_limit: Option<usize>,
    /// Maximum width of the stack column; `None` for any width.
    pub max_src_column_width: Option<usize>,
    /// Maximum width of the name column.
    pub max_name_column_width: Option<usize>,
    /// Maximum width of the shape column.
    pub max_shapes_column_width: Option<usize>,
    /// A line above the table.
    pub header: Option<String>,
    /// Leave out events with a parent.
    pub top_level_events_only: bool,
    /// Unit of all times; by default each value has its own.
    pub time_unit: Option<TimeUnit>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            row_limit: Some(100),
            max_src_column_width: Some(75),
            max_name_column_width: Some(55),
            max_shapes_column_width: Some(80),
            header: None,
            top_level_events_only: false,
            time_unit: None,
        }
    }
}

/// An attribute of [`KeyAverage`] to sort by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the attribute of that name")]
pub enum SortBy {
    CpuTimeTotal,
    SelfCpuTimeTotal,
    CpuTime,
    DeviceTimeTotal,
    SelfDeviceTimeTotal,
    DeviceTime,
    CpuMemoryUsage,
    SelfCpuMemoryUsage,
    DeviceMemoryUsage,
    SelfDeviceMemoryUsage,
    Count,
    Flops,
    Key,
}

impl SortBy {
    /// All attributes by name.
    pub const NAMES: [(&'static str, Self); 13] = [
        ("cpu_time_total", Self::CpuTimeTotal),
        ("self_cpu_time_total", Self::SelfCpuTimeTotal),
        ("cpu_time", Self::CpuTime),
        ("device_time_total", Self::DeviceTimeTotal),
        ("self_device_time_total", Self::SelfDeviceTimeTotal),
        ("device_time", Self::DeviceTime),
        ("cpu_memory_usage", Self::CpuMemoryUsage),
        ("self_cpu_memory_usage", Self::SelfCpuMemoryUsage),
        ("device_memory_usage", Self::DeviceMemoryUsage),
        ("self_device_memory_usage", Self::SelfDeviceMemoryUsage),
        ("count", Self::Count),
        ("flops", Self::Flops),
        ("key", Self::Key),
    ];

    /// Parses the name of an attribute; `cuda`, `xpu` and `privateuse1` mean `device`. `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        let name = name
            .replace("cuda", "device")
            .replace("xpu", "device")
            .replace("privateuse1", "device");
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, by)| *by)
    }

    fn compare(self, a: &KeyAverage, b: &KeyAverage) -> Ordering {
        let time = |of: fn(&KeyAverage) -> f64| of(a).total_cmp(&of(b));
        match self {
            Self::CpuTimeTotal => time(|row| row.cpu_time_total),
            Self::SelfCpuTimeTotal => time(|row| row.self_cpu_time_total),
            Self::CpuTime => time(KeyAverage::cpu_time),
            Self::DeviceTimeTotal => time(|row| row.device_time_total),
            Self::SelfDeviceTimeTotal => time(|row| row.self_device_time_total),
            Self::DeviceTime => time(KeyAverage::device_time),
            Self::CpuMemoryUsage => a.cpu_memory_usage.cmp(&b.cpu_memory_usage),
            Self::SelfCpuMemoryUsage => a.self_cpu_memory_usage.cmp(&b.self_cpu_memory_usage),
            Self::DeviceMemoryUsage => a.device_memory_usage.cmp(&b.device_memory_usage),
            Self::SelfDeviceMemoryUsage => {
                a.self_device_memory_usage.cmp(&b.self_device_memory_usage)
            }
            Self::Count => a.count.cmp(&b.count),
            Self::Flops => a.flops.cmp(&b.flops),
            Self::Key => a.key.cmp(&b.key),
        }
    }
}

impl KeyAverages {
    /// Sorts the rows, the largest first; equal ones retain their order.
    pub fn sort(&mut self, by: SortBy) {
        self.rows.sort_by(|a, b| by.compare(b, a));
    }

    /// Formats the table, with a newline after each line. Empty without rows.
    pub fn table(&self, options: &TableOptions) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        Printer::new(self, options).print()
    }
}

/// Width of columns with numbers.
const NUMBERS: usize = 12;
/// Blanks after each column.
const SPACING: &str = "  ";

#[allow(
    clippy::struct_excessive_bools,
    reason = "each says whether a column is there"
)]
struct Printer<'a> {
    averages: &'a KeyAverages,
    options: &'a TableOptions,
    has_overloads: bool,
    has_device_time: bool,
    has_device_memory: bool,
    has_shapes: bool,
    has_stack: bool,
    name_width: usize,
    shapes_width: usize,
    stack_width: usize,
    /// Factor and title of the column of operations.
    flops: Option<(f64, &'static str)>,
    out: String,
}

impl<'a> Printer<'a> {
    fn new(averages: &'a KeyAverages, options: &'a TableOptions) -> Self {
        let rows = &averages.rows;
        let width =
            |longest: usize, most: Option<usize>| (longest + 4).min(most.unwrap_or(usize::MAX));
        let longest = |of: fn(&KeyAverage) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let flops = rows.iter().map(|row| row.flops).filter(|flops| *flops > 0);
        Self {
            averages,
            options,
            has_overloads: rows.iter().any(|row| !row.overload_name.is_empty()),
            has_device_time: averages.has_device_time(),
            has_device_memory: averages.profile_memory && averages.has_device_memory(),
            // A list without elements does not count.
            has_shapes: rows
                .iter()
                .any(|row| !matches!(row.input_shapes.as_str(), "" | "[]")),
            has_stack: rows.iter().any(|row| !row.stack.is_empty()),
            name_width: width(
                longest(|row| letters(&row.key)),
                options.max_name_column_width,
            ),
            shapes_width: width(
                longest(|row| letters(&row.input_shapes)),
                options.max_shapes_column_width,
            ),
            stack_width: width(
                longest(|row| {
                    row.stack
                        .iter()
                        .map(|frame| letters(frame))
                        .max()
                        .unwrap_or(0)
                }),
                options.max_src_column_width,
            ),
            flops: flops.min().filter(|_| averages.with_flops).map(scale),
            out: String::new(),
        }
    }

    /// Returns titles and widths, in the order of the values.
    fn columns(&self) -> Vec<(String, usize)> {
        let device = self
            .averages
            .use_device
            .map_or_else(|| "None".to_owned(), str::to_uppercase);
        let mut columns = vec![("Name".to_owned(), self.name_width)];
        if self.has_overloads {
            columns.push(("Overload Name".to_owned(), self.name_width));
        }
        let mut number = |title: String| columns.push((title, NUMBERS));
        for title in [
            "Self CPU %",
            "Self CPU",
            "CPU total %",
            "CPU total",
            "CPU time avg",
        ] {
            number(title.to_owned());
        }
        if self.has_device_time {
            number(format!("Self {device}"));
            number(format!("Self {device} %"));
            number(format!("{device} total"));
            number(format!("{device} time avg"));
        }
        if self.averages.profile_memory {
            number("CPU Mem".to_owned());
            number("Self CPU Mem".to_owned());
            if self.has_device_memory {
                number(format!("{device} Mem"));
                number(format!("Self {device} Mem"));
            }
        }
        number("# of Calls".to_owned());
        if self.has_shapes {
            columns.push(("Input Shapes".to_owned(), self.shapes_width));
        }
        if let Some((_, title)) = self.flops {
            columns.push((format!("Total {title}"), NUMBERS));
        }
        if self.has_stack {
            columns.push(("Source Location".to_owned(), self.stack_width));
        }
        columns
    }

    fn print(mut self) -> String {
        let columns = self.columns();
        let mut line = String::new();
        for (_, width) in &columns {
            line.extend(std::iter::repeat_n('-', *width));
            line.push_str(SPACING);
        }
        let length = columns
            .iter()
            .map(|(_, width)| width + SPACING.len())
            .sum::<usize>()
            - SPACING.len();
        let rule = "=".repeat(length);
        if let Some(header) = &self.options.header {
            self.line(&rule);
            self.line(header);
        }
        if self.options.top_level_events_only {
            self.line(&rule);
            self.line("This report only display top-level ops statistics");
        }
        self.line(&line);
        let titles: Vec<String> = columns.iter().map(|(title, _)| title.clone()).collect();
        self.row(&columns, &titles);
        self.line(&line);
        let averages = self.averages;
        let on_cpu = averages.self_cpu_time_total();
        let on_device = averages.self_device_time_total();
        let limit = self.options.row_limit.unwrap_or(usize::MAX);
        let top_only = self.options.top_level_events_only;
        let rows = averages
            .rows
            .iter()
            .filter(|row| !top_only || !row.has_parent);
        for row in rows.take(limit) {
            let values = self.values(row, on_cpu, on_device);
            self.row(&columns, &values);
            if self.has_stack {
                self.further_frames(&columns, row);
            }
        }
        self.line(&line);
        let total = format!("Self CPU time total: {}", self.time(on_cpu));
        self.line(&total);
        if self.has_device_time {
            let device = averages.use_device.unwrap_or("None").to_uppercase();
            let total = format!("Self {device} time total: {}", self.time(on_device));
            self.line(&total);
        }
        self.out
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn row(&mut self, columns: &[(String, usize)], values: &[String]) {
        let last = if self.has_stack { columns.len() } else { 0 };
        for (number, ((_, width), value)) in columns.iter().zip(values).enumerate() {
            // Writing to a string cannot fail.
            let _ = if number + 1 == last {
                write!(self.out, "{value:<width$}{SPACING}")
            } else {
                write!(self.out, "{value:>width$}{SPACING}")
            };
        }
        self.out.push('\n');
    }

    fn values(&self, row: &KeyAverage, on_cpu: f64, on_device: f64) -> Vec<String> {
        let cut = |text: &str| match self.options.max_name_column_width {
            Some(most) if letters(text) + 3 >= most => {
                let head: String = text.chars().take(most.saturating_sub(3)).collect();
                format!("{head}...")
            }
            _ => text.to_owned(),
        };
        let mut values = vec![cut(&row.key)];
        if self.has_overloads {
            values.push(cut(&row.overload_name));
        }
        values.push(share(row.self_cpu_time_total, on_cpu));
        values.push(self.time(row.self_cpu_time_total));
        values.push(if row.is_async {
            "0".to_owned()
        } else {
            share(row.cpu_time_total, on_cpu)
        });
        values.push(self.time(row.cpu_time_total));
        values.push(self.time(row.cpu_time()));
        if self.has_device_time {
            values.push(self.time(row.self_device_time_total));
            values.push(share(row.self_device_time_total, on_device));
            values.push(self.time(row.device_time_total));
            values.push(self.time(row.device_time()));
        }
        if self.averages.profile_memory {
            values.push(memory(row.cpu_memory_usage));
            values.push(memory(row.self_cpu_memory_usage));
            if self.has_device_memory {
                values.push(memory(row.device_memory_usage));
                values.push(memory(row.self_device_memory_usage));
            }
        }
        values.push(row.count.to_string());
        if self.has_shapes {
            values.push(row.input_shapes.chars().take(self.shapes_width).collect());
        }
        if let Some((factor, _)) = self.flops {
            values.push(match row.flops {
                0 => "--".to_owned(),
                flops => format!("{:8.3}", flops as f64 * factor),
            });
        }
        if self.has_stack {
            values.push(
                row.stack
                    .first()
                    .map_or_else(String::new, |frame| self.frame(frame)),
            );
        }
        values
    }

    /// Prints the frames below the first, and an empty line.
    fn further_frames(&mut self, columns: &[(String, usize)], row: &KeyAverage) {
        let mut values = vec![String::new(); columns.len()];
        for frame in row.stack.iter().skip(1).map(Some).chain([None]) {
            let text = frame.map_or_else(String::new, |frame| self.frame(frame));
            if let Some(last) = values.last_mut() {
                *last = text;
            }
            self.row(columns, &values);
        }
    }

    /// Returns the end of a frame that is too long.
    fn frame(&self, frame: &str) -> String {
        let over = letters(frame).saturating_sub(self.stack_width);
        if over == 0 {
            return frame.to_owned();
        }
        let tail: String = frame.chars().skip(over).collect();
        if letters(&tail) > 3 {
            let rest: String = tail.chars().skip(3).collect();
            format!("...{rest}")
        } else {
            tail
        }
    }

    fn time(&self, us: f64) -> String {
        match self.options.time_unit {
            Some(TimeUnit::Seconds) => format!("{:.3}s", us / 1e6),
            Some(TimeUnit::Milliseconds) => format!("{:.3}ms", us / 1e3),
            Some(TimeUnit::Microseconds) => format!("{us:.3}us"),
            None => time(us),
        }
    }
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Formats a time in a suitable unit.
fn time(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.3}s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.3}ms", us / 1e3)
    } else {
        format!("{us:.3}us")
    }
}

fn share(us: f64, of: f64) -> String {
    if of == 0.0 {
        return "NaN".to_owned();
    }
    format!("{:.2}%", us * 100.0 / of)
}

fn memory(bytes: i64) -> String {
    let size = bytes.unsigned_abs();
    let value = bytes as f64;
    match size {
        1_073_741_824.. => format!("{:.2} GB", value / 1_073_741_824.0),
        1_048_576.. => format!("{:.2} MB", value / 1_048_576.0),
        1_024.. => format!("{:.2} KB", value / 1_024.0),
        _ => format!("{bytes} B"),
    }
}

/// Returns factor and title for operations with the minimum `fewest`.
fn scale(fewest: u64) -> (f64, &'static str) {
    const STEPS: [(f64, &str); 6] = [
        (1e0, "FLOPs"),
        (1e-3, "KFLOPs"),
        (1e-6, "MFLOPs"),
        (1e-9, "GFLOPs"),
        (1e-12, "TFLOPs"),
        (1e-15, "PFLOPs"),
    ];
    let step = ((fewest as f64).log10() / 3.0).clamp(0.0, 5.0).floor();
    STEPS
        .iter()
        .zip(0_u8..)
        .find(|(_, number)| f64::from(*number) >= step)
        .map_or(STEPS[0], |(found, _)| *found)
}
