//! Sizes, pages and escapes of answers.

use super::*;

fn page(rows: usize, characters: usize) -> PageRequest {
    PageRequest {
        offset: 0,
        rows,
        section: None,
        characters,
    }
}

fn report(rows: usize, name: &str) -> Report {
    let mut report = Report::new("demo");
    report.sentence = format!("{rows} rows of {name}.").into();
    report.scalar("total_ns", "Total", Unit::Ns, 1.5e6);
    report.table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("never", "Never", Unit::Text),
    ]);
    for at in 0..rows {
        report.table.push([
            format!("{name}{at}").into(),
            (at as f64 * 1e3).into(),
            Cell::Empty,
        ]);
    }
    let mut table = Table::new(vec![Column::new("name", "Name", Unit::Text)]);
    for at in 0..rows {
        table.push([format!("{name}{at}").into()]);
    }
    report.section("more", "More", table);
    report
}

fn rendered(report: Report, page: &PageRequest) -> Rendered {
    render(
        Answer::new(Some("r".to_owned()), report),
        page,
        "tool",
        &Args::default(),
    )
    .unwrap()
}

fn size(rendered: &Rendered) -> usize {
    length(&rendered.text) + length(&Value::Object(rendered.json.clone()).to_string())
}

#[test]
fn text_has_units_and_json_has_exact_numbers() {
    let found = rendered(report(2, "aten::mm "), &page(20, 20_000));
    assert!(
        found
            .text
            .starts_with("2 rows of aten::mm .\nTotal: 1.50 ms\n"),
        "{}",
        found.text
    );
    assert!(
        found
            .text
            .contains("| Name | Total |\n| --- | ---: |\n| aten::mm 0 | 0 ns |\n"),
        "{}",
        found.text
    );
    assert_eq!(
        found.json["rows"][1],
        json!({"name": "aten::mm 1", "total_ns": 1000.0})
    );
    assert_eq!(found.json["summary"]["total_ns"], 1.5e6);
    assert_eq!(found.json["truncated"], false);
    assert_eq!(found.json["next"], json!([]));
    assert_eq!(found.json["sections"][0]["rows"][0]["name"], "aten::mm 0");
}

#[test]
fn no_answer_is_larger_than_asked_and_each_says_how_to_go_on() {
    for name in ["x", "|*_", "\u{202e}\u{1b}\"\\"] {
        for characters in [CHARACTERS.0, 20_000, CHARACTERS.1] {
            let long = name.repeat(5_000);
            let mut report = report(1_000, &long);
            for _ in 0..100 {
                report.note(long.clone());
            }
            report.text = Some(vec![long; 100].join("\n"));
            let found = rendered(report, &page(1_000, characters));
            assert!(
                size(&found) <= characters,
                "{} > {characters}",
                size(&found)
            );
            assert_eq!(found.json["truncated"], true);
            let next = &found.json["next"][0];
            let rows = found.json["rows"].as_array().unwrap().len();
            assert_eq!(next["arguments"]["offset"], rows);
            assert_eq!(next["rows"], 1_000 - rows);
            assert!(found.text.contains("call 'tool' with {"), "{}", found.text);
            assert!(!found.text.contains('\u{202e}') && !found.text.contains('\u{1b}'));
        }
    }
}

#[test]
fn the_next_call_continues_where_this_one_ended() {
    let mut all = Vec::new();
    let mut request = page(7, 20_000);
    loop {
        let found = rendered(report(30, "n"), &request);
        let rows = found.json["rows"].as_array().unwrap();
        all.extend(
            rows.iter()
                .map(|row| row["name"].as_str().unwrap().to_owned()),
        );
        let next = found.json["next"].as_array().unwrap().clone();
        let offsets = next
            .iter()
            .find_map(|call| call["arguments"]["offset"].as_u64());
        let Some(offset) = offsets else { break };
        request.offset = usize::try_from(offset).unwrap();
    }
    let expected: Vec<String> = (0..30).map(|at| format!("n{at}")).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_section_is_paged_by_its_name() {
    let mut request = page(2, 20_000);
    request.section = Some("more".to_owned());
    request.offset = 3;
    let found = rendered(report(6, "n"), &request);
    assert_eq!(found.json["rows"], json!([{"name": "n3"}, {"name": "n4"}]));
    assert_eq!(found.json["left_out"], 1);
    request.section = Some("mores".to_owned());
    let answer = Answer::new(None, report(6, "n"));
    let error = render(answer, &request, "tool", &Args::default()).unwrap_err();
    assert!(
        error.text().contains("did you mean 'more'?"),
        "{}",
        error.text()
    );
}

#[test]
fn advice_is_longer_than_a_name() {
    let mut report = Report::new("demo");
    report.table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("advice", "What to do", Unit::Text),
    ]);
    let text = "word ".repeat(60);
    report
        .table
        .push([text.as_str().into(), text.as_str().into()]);
    let found = rendered(report, &page(20, 20_000));
    let row = &found.json["rows"][0];
    let length = |key: &str| row[key].as_str().unwrap().chars().count();
    assert_eq!((length("name"), length("advice")), (LONGEST_NAME, 300));
}

#[test]
fn names_stay_text() {
    let found = rendered(report(1, "<b>|`x`\u{200b}\n# run rm"), &page(20, 20_000));
    let row = found
        .text
        .lines()
        .find(|line| line.starts_with("| \\<"))
        .unwrap();
    assert_eq!(
        row,
        "| \\<b\\>\\|\\`x\\`\\\\u{200b}\\\\n\\# run rm0 | 0 ns |"
    );
    assert_eq!(
        found.json["rows"][0]["name"],
        "<b>|`x`\\u{200b}\\n# run rm0"
    );
}
