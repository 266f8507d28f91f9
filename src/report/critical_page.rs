//! The page of the critical batch size: the answer in words, the tables behind it, and the figures.

use serde::Serialize;

use crate::analysis::critical_batch::{
    BatchPoint, Case, CriticalBatch, EstimateRow, Fit, RateLaw, SeedPoint, TriedEnd, words,
};
use crate::analysis::numbers::{count, fixed, list, plural, significant};
use crate::math::statistics::Interval;
use crate::math::steps_fit::Bound;

use super::critical_figures::colours;
use super::critical_words::{fit_of, number, quantity_name, rate};
use super::figure::Drawn;
use super::page::{self, FigureView, Table};

/// Words stand beside numbers in these tables, and wrap there.
const RULES: &str = "main { max-width: 1180px; }
.number ~ td.text { white-space: normal; }
td.long { min-width: 14em; }
.number + .text, .number + .long, th.number + th:not(.number) { padding-left: 18px; }
";

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    description: Option<&'a str>,
    unfinished: Option<&'a str>,
    style: String,
    asked: Vec<(&'static str, String)>,
    overview: Option<Titled>,
    cases: Vec<CaseView<'a>>,
    figures: Vec<FigureView<'a>>,
    version: &'static str,
}

/// What the page says of one case.
#[derive(Serialize)]
struct CaseView<'a> {
    title: &'a str,
    paragraphs: Vec<String>,
    tables: Vec<Titled>,
}

/// A table with its heading.
#[derive(Serialize)]
struct Titled {
    title: &'static str,
    table: Table,
    /// The first column after those of numbers.
    words_from: usize,
    note: String,
}

/// Renders the page, with these figures.
pub(super) fn render(
    critical: &CriticalBatch,
    figures: &[Drawn],
) -> Result<String, minijinja::Error> {
    let case = |case| CaseView {
        title: title(case),
        paragraphs: words(case),
        tables: tables(case),
    };
    let page = Page {
        name: &critical.name,
        description: critical.description.as_deref(),
        unfinished: critical.unfinished.as_deref(),
        style: page::style(&format!(
            "{RULES}{}",
            page::dark_rules("figure", &colours(critical), true)
        )),
        asked: asked(critical),
        overview: overview(critical),
        cases: critical.cases.iter().map(case).collect(),
        figures: figures.iter().map(FigureView::of).collect(),
        version: env!("CARGO_PKG_VERSION"),
    };
    page::rendered(
        concat!(
            include_str!("page_parts.html"),
            include_str!("critical_page.html")
        ),
        page,
    )
}

fn title(case: &Case) -> &str {
    match case.label.as_str() {
        "" => "The critical batch size",
        label => label,
    }
}

fn dash() -> String {
    "–".to_owned()
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(dash, text)
}

/// Two ends; `unbounded` where one is not finite.
fn ends(interval: Interval, text: fn(f64) -> String) -> String {
    let end = |value: f64| {
        if value.is_finite() {
            text(value)
        } else {
            "unbounded".to_owned()
        }
    };
    format!("{} to {}", end(interval.low), end(interval.high))
}

/// A number without a unit.
fn plain(value: f64) -> String {
    significant(value, 3)
}

fn asked(critical: &CriticalBatch) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    rows.extend(critical.target.clone().map(|t| ("Target", t)));
    rows.extend(critical.crossing.clone().map(|c| ("Crossings", c)));
    let mut batches: Vec<u64> = Vec::new();
    let mut seeds: Vec<u64> = Vec::new();
    for point in critical.cases.iter().flat_map(|c| &c.batches) {
        batches.push(point.batch);
        seeds.extend(point.seeds.iter().map(|s| s.seed));
    }
    for (name, mut values) in [("Batches", batches), ("Seeds", seeds)] {
        values.sort_unstable();
        values.dedup();
        let text = match values.as_slice() {
            [] => continue,
            [first, .., last] if values.len() > 16 => {
                format!("{} from {first} to {last}", values.len())
            }
            _ => list(&values.iter().map(u64::to_string).collect::<Vec<_>>()),
        };
        rows.push((name, text));
    }
    rows
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

/// B_crit where it is an estimate; else what bounds it or why there is none, by the row of the sweep.
fn sweep(case: &Case) -> Option<&EstimateRow> {
    case.estimates.iter().find(|r| r.quantity == "b_crit")
}

/// A row a case, where there are several.
fn overview(critical: &CriticalBatch) -> Option<Titled> {
    if critical.cases.len() < 2 {
        return None;
    }
    let rows = critical.cases.iter().map(|case| {
        let row = sweep(case);
        let law = fit_of(case);
        let s = law.filter(|f| f.fit.bound != Some(Bound::Above));
        let e = law.filter(|f| f.fit.bound != Some(Bound::Below));
        let known = law.filter(|f| f.fit.bound.is_none());
        vec![
            title(case).to_owned(),
            or_dash(row.and_then(|r| r.value), number),
            or_dash(row.and_then(|r| r.interval), |i| ends(i, number)),
            or_dash(known, |f| number(f.efficient_batch)),
            or_dash(s, |f| number(f.fit.s_min)),
            or_dash(e, |f| number(f.fit.e_min())),
            row.map_or_else(String::new, |r| r.note.clone()),
        ]
    });
    Some(Titled {
        title: "Every case",
        table: Table {
            rows: rows.collect(),
            head: head(&[
                "case",
                "B_crit (examples)",
                "95 % interval",
                "batch with 20 % more examples",
                "S_min (updates)",
                "E_min (examples)",
                "note",
            ]),
            numbers_from: 1,
        },
        words_from: 6,
        note: "By the fit to steps to the target. S_min: fewest updates that any batch can do with; E_min: fewest examples."
            .to_owned(),
    })
}

fn tables(case: &Case) -> Vec<Titled> {
    let mut tables = Vec::new();
    tables.extend(estimates(case));
    tables.extend(batches(case));
    tables.extend(fit_of(case).map(fit));
    tables.extend(fit_of(case).and_then(regimes));
    tables.extend(case.rate_law.as_ref().map(rate_law));
    tables
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share, 2))
}

/// Every estimate with its interval and what it cost.
fn estimates(case: &Case) -> Option<Titled> {
    type Cell = fn(&EstimateRow) -> String;
    let rows = &case.estimates;
    let costs = rows.iter().any(|r| r.cost.is_some());
    let seconds = rows
        .iter()
        .any(|r| r.cost.is_some_and(|c| c.seconds.is_some()));
    let published = rows.iter().any(|r| r.published.is_some());
    let mut columns: Vec<(&str, Cell)> = vec![
        ("method", |r| r.method.clone()),
        ("quantity", |r| quantity_name(r.quantity).to_owned()),
        ("value (examples)", |r| or_dash(r.value, number)),
        ("95 % interval", |r| {
            or_dash(r.interval, |i| ends(i, number))
        }),
        ("over the sweep's", |r| or_dash(r.ratio, plain)),
    ];
    if costs {
        columns.push(("examples it took", |r| {
            or_dash(r.cost, |c| number(c.examples as f64))
        }));
    }
    if seconds {
        columns.push(("seconds of work", |r| {
            or_dash(r.cost.and_then(|c| c.seconds), number)
        }));
    }
    if costs {
        columns.push(("examples over the sweep's", |r| or_dash(r.share, percent)));
    }
    let words_from = columns.len();
    if published {
        columns.push(("published", |r| {
            or_dash(r.published, |p| {
                format!("{} ({})", number(p.value), p.source)
            })
        }));
    }
    columns.push(("note", |r| r.note.clone()));
    let mut note = String::new();
    if costs {
        note.push_str(
            "Examples are those of which gradients were taken, over all trials and seeds; a product with the Hessian counts as two.",
        );
    }
    if seconds {
        note.push_str(" Seconds differ from run to run and from machine to machine.");
    }
    (!rows.is_empty()).then(|| Titled {
        title: "Every estimate of the critical batch size",
        table: Table {
            rows: rows
                .iter()
                .map(|row| columns.iter().map(|c| c.1(row)).collect())
                .collect(),
            head: columns.iter().map(|c| c.0.to_owned()).collect(),
            numbers_from: 2,
        },
        words_from,
        note,
    })
}

/// How many trials of a batch ended so.
fn ended(point: &BatchPoint, end: TriedEnd) -> usize {
    let trials = point.seeds.iter().flat_map(|s| &s.tried);
    trials.filter(|t| t.end == end).count()
}

/// "2 of 3".
fn of_seeds(point: &BatchPoint, is: impl Fn(&&SeedPoint) -> bool) -> String {
    let n = point.seeds.iter().filter(is).count();
    format!("{n} of {}", point.seeds.len())
}

/// What was measured at each batch.
fn batches(case: &Case) -> Option<Titled> {
    let seeds = || case.batches.iter().flat_map(|b| &b.seeds);
    let rates = seeds().any(|s| s.rate.is_some());
    let others = seeds().any(|s| !s.others.is_empty());
    let tried = seeds().any(|s| !s.tried.is_empty());
    let mut ends_of = vec![
        (TriedEnd::Reached, "trials that reached it"),
        (TriedEnd::Censored, "censored"),
        (TriedEnd::Overtaken, "overtaken"),
        (TriedEnd::Diverged, "diverged"),
        (TriedEnd::Failed, "failed"),
    ];
    let failed = case.batches.iter().any(|b| ended(b, TriedEnd::Failed) > 0);
    ends_of.retain(|e| failed || e.0 != TriedEnd::Failed);
    let mut names = vec![
        "batch",
        "updates to the target",
        "95 % interval",
        "examples to the target",
        "seeds that reached it",
    ];
    if rates {
        names.extend(["best rate", "95 % interval of the rate"]);
    }
    if tried {
        names.extend(ends_of.iter().map(|e| e.1));
    }
    if rates {
        names.push("best rate at an edge");
    }
    let words_from = names.len();
    if others {
        names.push("other keys at the best");
    }
    let rows = case.batches.iter().map(|point| {
        let batch = point.batch as f64;
        let reached = point.seeds.iter().any(|s| s.steps.is_some());
        let bounds = point.seeds.iter().map(|s| s.bound);
        let mut row = vec![
            count(point.batch),
            match point.steps {
                Some(mean) => number(mean.value),
                None if reached => dash(),
                None => or_dash(bounds.min_by(f64::total_cmp), |b| {
                    format!("> {}", number(b))
                }),
            },
            or_dash(point.steps.and_then(|m| m.interval), |i| ends(i, number)),
            or_dash(point.steps, |m| number(m.value * batch)),
            of_seeds(point, |s| s.steps.is_some()),
        ];
        if rates {
            row.push(or_dash(point.rate, |m| rate(m.value)));
            let interval = point.rate.and_then(|m| m.interval);
            row.push(or_dash(interval, |i| ends(i, rate)));
        }
        if tried {
            row.extend(ends_of.iter().map(|e| ended(point, e.0).to_string()));
        }
        if rates {
            row.push(of_seeds(point, |s| s.edge));
        }
        if others {
            let mut values: Vec<&str> = point.seeds.iter().map(|s| s.others.as_str()).collect();
            values.retain(|v| !v.is_empty());
            values.dedup();
            row.push(if values.is_empty() {
                dash()
            } else {
                values.join("; ")
            });
        }
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut note = "Geometric means over the seeds, each at its best rate, with 95 % intervals (Student's t in the logarithm, which \
                    one seed does not have). A batch has a mean only if every seed reached the target; > n: no seed reached it in n updates."
        .to_owned();
    if tried {
        note.push_str(
            " Censored: at the end of its budget without reaching the target. Overtaken: ended as soon as another rate of the same batch and seed had reached the target in as many updates.",
        );
    }
    if rates {
        note.push_str(
            " At an edge: seeds whose best rate is the largest or smallest that was allowed.",
        );
    }
    (!rows.is_empty()).then(|| Titled {
        title: "What was measured at each batch",
        table: Table {
            rows,
            head: head(&names),
            numbers_from: 0,
        },
        words_from,
        note,
    })
}

/// S_min, E_min and B_crit, and how well they fit.
fn fit(fit: &Fit) -> Titled {
    let law = &fit.fit;
    let found = fit.intervals.as_ref();
    let row = |name: &str, value: String, interval: Option<String>, what: String| {
        vec![name.to_owned(), value, interval.unwrap_or_else(dash), what]
    };
    // What lies beyond the batches measured has no value.
    let quantity = |name: &str, value: f64, interval: Option<Interval>, open: bool, what: &str| {
        if open {
            let what = format!("not told by these batches; {what}");
            return row(name, dash(), None, what);
        }
        let interval = interval.map(|i| ends(i, number));
        row(name, number(value), interval, what.to_owned())
    };
    let mut rows = vec![
        quantity(
            "S_min (updates)",
            law.s_min,
            found.map(|i| i.s_min),
            law.bound == Some(Bound::Above),
            "fewest updates that any batch can do with",
        ),
        quantity(
            "E_min (examples)",
            law.e_min(),
            found.map(|i| i.e_min),
            law.bound == Some(Bound::Below),
            "fewest examples that any batch can do with",
        ),
        quantity(
            "B_crit (examples)",
            law.b_crit,
            found.map(|i| i.b_crit),
            law.bound.is_some(),
            match law.bound {
                None => "the batch with twice the fewest of both",
                Some(Bound::Above) => "above them: no batch flattens",
                Some(Bound::Below) => "below them: no batch gains on a smaller one",
            },
        ),
    ];
    let goodness = &fit.goodness;
    rows.push(row(
        "R²",
        or_dash(goodness.r_squared, |r| fixed(r, 4)),
        None,
        "share of the variation of log updates that the fit explains".to_owned(),
    ));
    rows.push(row(
        "residual",
        percent(goodness.rms_log.exp_m1()),
        None,
        "root mean square in log updates".to_owned(),
    ));
    rows.push(match goodness.lack_of_fit {
        Some(lack) => row(
            "lack of fit, p",
            if lack.p < 0.001 {
                "< 0.001".to_owned()
            } else {
                fixed(lack.p, 3)
            },
            None,
            format!(
                "F = {} with {} and {} degrees of freedom; a small p: the batches lie off the curve by more than seeds differ",
                significant(lack.f, 3),
                lack.freedom.0,
                lack.freedom.1
            ),
        ),
        None => row(
            "lack of fit, p",
            dash(),
            None,
            "needs three batches and several seeds".to_owned(),
        ),
    });
    let samples = format!(
        "{}{}",
        plural(law.n, "sample", "samples"),
        match law.censored {
            0 => String::new(),
            n => format!(
                ", {n} of which did not reach the target and count as more updates than they made"
            ),
        }
    );
    let note = match found {
        Some(i) => format!(
            "{samples}. Intervals: 95 %, bootstrap over {} with {} resamples.",
            plural(i.seeds, "seed", "seeds"),
            count(i.resamples as u64)
        ),
        None => format!(
            "{samples}. No intervals: they need several seeds that reached the target at two batches or more."
        ),
    };
    Titled {
        title: "The fit S = S_min (1 + B_crit/B)",
        table: Table {
            rows,
            head: head(&["quantity", "value", "95 % interval", "what it is"]),
            numbers_from: 1,
        },
        words_from: 3,
        note,
    }
}

/// Where scaling is perfect, where its returns diminish, and where they end.
fn regimes(fit: &Fit) -> Option<Titled> {
    if fit.fit.bound.is_some() {
        return None;
    }
    let of = |batch: f64| {
        let share = batch / fit.fit.b_crit;
        let interval = fit.intervals.as_ref().map(|i| Interval {
            low: i.b_crit.low * share,
            high: i.b_crit.high * share,
        });
        or_dash(interval, |i| ends(i, number))
    };
    let (efficient, saturated) = (fit.efficient_batch, fit.saturated_batch);
    let row = |name: &str, batches: String, interval: String, what: &str| {
        vec![name.to_owned(), batches, interval, what.to_owned()]
    };
    let mut rows = vec![
        row(
            "perfect scaling",
            format!("up to {}", number(efficient)),
            of(efficient),
            "at most 20 % more examples than the fewest: 0.2 B_crit",
        ),
        row(
            "diminishing returns",
            format!("{} to {}", number(efficient), number(saturated)),
            dash(),
            "fewer updates for more examples",
        ),
        row(
            "maximal data parallelism",
            format!("above {}", number(saturated)),
            of(saturated),
            "at most 20 % more updates than the fewest: 5 B_crit",
        ),
    ];
    if let Some(batch) = fit.measured_efficient_batch {
        rows.push(row(
            "perfect scaling, by the points alone",
            format!("up to {}", number(batch)),
            dash(),
            "at most 20 % more examples than the smallest batch, between batches by interpolation",
        ));
    }
    Some(Titled {
        title: "Regimes",
        table: Table {
            rows,
            head: head(&[
                "regime",
                "batches",
                "95 % interval of its end",
                "what it is",
            ]),
            numbers_from: 1,
        },
        words_from: 3,
        note: String::new(),
    })
}

/// The law of the best rate.
fn rate_law(law: &RateLaw) -> Titled {
    let fit = &law.fit;
    let open = fit.is_unsaturated();
    let row = |name: &str, value: String, interval: Option<String>, what: &str| {
        vec![
            name.to_owned(),
            value,
            interval.unwrap_or_else(dash),
            what.to_owned(),
        ]
    };
    let beyond = "beyond the batches measured: the rate grows up to the largest";
    let rows = vec![
        row(
            "ε_max",
            if open { dash() } else { rate(fit.rate_max) },
            None,
            if open {
                beyond
            } else {
                "best rate of a very large batch"
            },
        ),
        row(
            "B* (examples)",
            if open { dash() } else { number(fit.b_star) },
            law.b_star.filter(|_| !open).map(|i| ends(i, number)),
            if open {
                beyond
            } else {
                "the batch about which growth ends"
            },
        ),
        row(
            "α",
            significant(fit.alpha, 2),
            law.alpha.map(|i| ends(i, |v| significant(v, 2))),
            "exponent of the growth far below B*",
        ),
        row(
            "initial exponent",
            or_dash(law.initial_exponent, |v| significant(v, 2)),
            None,
            "between the two smallest batches with a best rate",
        ),
    ];
    Titled {
        title: "The best rate, ε = ε_max/(1 + B*/B)^α",
        table: Table {
            rows,
            head: head(&["quantity", "value", "95 % interval", "what it is"]),
            numbers_from: 1,
        },
        words_from: 3,
        note: format!(
            "Fitted to the best rates of {}; residual {} in the log of the rate.",
            plural(fit.n, "search", "searches"),
            percent(fit.log_sd.exp_m1())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::critical_figures::figures;
    use super::super::critical_figures::tests::{FULL, Made, made, study};
    use super::*;

    fn page(critical: &CriticalBatch) -> String {
        let drawn: Vec<Drawn> = figures(critical)
            .into_iter()
            .map(|f| Drawn {
                svg: f.svg().unwrap(),
                name: f.name,
                caption: f.caption,
            })
            .collect();
        render(critical, &drawn).unwrap()
    }

    #[test]
    fn text_is_escaped() {
        let page = page(&study(vec![made("", &FULL)]));
        assert!(page.contains("is 3 &lt; 4 &amp; 5?"));
        assert!(!page.contains("is 3 < 4"));
        assert!(page.contains("<title>a study: critical batch size</title>"));
    }

    #[test]
    fn the_page_holds_the_numbers() {
        let case = made("", &FULL);
        let page = page(&study(vec![case.clone()]));
        let fit = fit_of(&case).unwrap();
        for number in [
            number(fit.fit.b_crit),
            number(fit.fit.s_min),
            number(fit.fit.e_min()),
            ends(fit.intervals.as_ref().unwrap().b_crit, number),
            number(case.batches[3].steps.unwrap().value),
        ] {
            assert!(page.contains(&format!(">{number}</td>")), "{number}");
        }
        for text in [
            "test accuracy of at least 0.9",
            "by interpolation",
            "4,000,000",
            "2.5 %",
            "75 to unbounded",
            "0.2 B_crit",
            "McCandlish",
            "maximal data parallelism",
            "exponent of the growth far below B*",
            "critical-steps.svg",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let words = words(&case);
        assert!(page.find(&words[0]).unwrap() < page.find("Every estimate").unwrap());
    }

    #[test]
    fn what_is_missing_is_a_dash_with_a_reason() {
        let lost = Made {
            budget: 50.0,
            others: false,
            ..FULL
        };
        let page_of = |m: &Made| page(&study(vec![made("", m)]));
        let none = page_of(&lost);
        assert!(none.contains("&gt; 50"));
        assert!(none.contains("none: no trial reached the target"));
        assert!(!none.contains("The fit S ="));
        let one = page_of(&Made { seeds: 1, ..FULL });
        assert!(one.contains("one seed: no interval"));
        assert!(one.contains("No intervals: they need several seeds"));
        let open = page_of(&Made {
            b_crit: 1e12,
            s_min: 1e-9,
            ..FULL
        });
        assert!(open.contains("at least 1024: no batch flattens"));
        assert!(open.contains("above them: no batch flattens"));
        assert!(!open.contains("Regimes"));
    }

    #[test]
    fn several_cases_are_beside_each_other_first() {
        let cases = || vec![made("model=a", &FULL), made("model=b", &FULL)];
        let two = page(&study(cases()));
        assert!(two.contains("<h2>Every case</h2>"));
        assert!(two.contains("<h2>model=a</h2>") && two.contains("<h2>model=b</h2>"));
        assert!(!page(&study(vec![made("", &FULL)])).contains("Every case"));
        assert_eq!(two, page(&study(cases())));
    }
}
