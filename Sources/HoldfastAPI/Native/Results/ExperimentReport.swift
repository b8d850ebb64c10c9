import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// A self-contained page about an experiment, to print or to send: the hypothesis, the results and the decision. It
/// loads nothing and has no scripts; its pictures are embedded.
///
/// ``page(nonce:)`` adds the sections one after the other, as HTML. The sections with numbers are in
/// `ExperimentReport+Numbers.swift`.
struct ExperimentReport {
    /// A variation compared with the baseline by one metric.
    struct Row {
        var variation: String
        var users: Int
        var mean: Double?
        /// The mean of the baseline.
        var baseline: Double?
        var effect: EffectSize?
        var pValue: Double?
        /// The outcome in words.
        var outcome: String
    }

    /// A metric of the report, with a row for each variation.
    struct Metric {
        var name: String
        /// `primary`, `guardrail` or `secondary`.
        var role: String
        /// Whether the metric is a share of users, which is shown as a percentage.
        var isShare: Bool
        /// Whether less is better.
        var isDecrease: Bool
        var unit = ""
        /// The position of a guardrail's margin on the axis of lifts.
        var margin: Double?
        /// The margin as text.
        var marginText: String?
        var rows: [Row]
    }

    let results: ExperimentResults
    /// The experiment as `GET` shows it.
    let description: JSONObject
    let metrics: [Metric]
    private let decision: Verdict.Decision
    private let winner: String?
    private let reasons: [String]
    private let warnings: [String]
    let series: ResultsSeries?
    let madeAt: Instant
    let author: String
    /// The sections so far.
    var html = ""

    /// Creates the report about all metrics of an experiment's plan.
    ///
    /// - Parameters:
    ///   - experiment: the experiment as `GET` shows it.
    ///   - series: the results by day of the first metric.
    init(
        _ plan: PlanResults, of experiment: JSONObject, series: ResultsSeries?, madeAt: Instant, by author: String
    ) {
        results = plan.common
        description = experiment
        metrics = plan.metrics.map { metric in
            let results = metric.results
            let unit = results.measured?.definition.unit ?? ""
            let isDecrease = results.measured?.definition.direction == .decrease
            return Metric(
                name: results.subject.string, role: metric.role.name, isShare: results.isShare,
                isDecrease: isDecrease, unit: unit, margin: metric.role.margin(isDecrease: isDecrease),
                marginText: metric.role.marginText(in: unit),
                rows: metric.findings.compactMap { finding in finding.map { Row(results, $0) } })
        }
        decision = plan.verdict.decision
        reasons = plan.verdict.reasons
        winner = plan.verdict.winner.map { plan.common.variations[$0].name }
        warnings = (plan.warnings + plan.metrics.flatMap(\.warnings)).map(\.message)
        self.series = series
        self.madeAt = madeAt
        self.author = author
    }

    /// Creates the report about one goal.
    ///
    /// - Parameter results: the results of the goal.
    init(
        _ results: ExperimentResults, of experiment: JSONObject, series: ResultsSeries?, madeAt: Instant,
        by author: String
    ) {
        self.results = results
        description = experiment
        let verdict = results.verdict
        metrics = [
            Metric(
                name: results.subject.string, role: "primary", isShare: results.isShare, isDecrease: false,
                unit: results.measured?.definition.unit ?? "",
                rows: verdict.findings.map { finding in Row(results, finding) })
        ]
        decision = verdict.decision
        reasons = verdict.reasons
        winner = verdict.winner.map { results.variations[$0].name }
        warnings = results.warnings.map(\.message)
        self.series = series
        self.madeAt = madeAt
        self.author = author
    }

    // MARK: The page

    /// Returns the page.
    ///
    /// - Parameter nonce: the nonce of the style sheet, which the content security policy names.
    func page(nonce: String) -> String {
        var page = self
        page.addHeading()
        page.addDecision()
        page.addTrial()
        page.addMetrics()
        page.addSeries()
        page.addUsers()
        page.addEnd()
        let title = Self.escaped(page.title)
        return """
            <!doctype html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta http-equiv="Content-Security-Policy" content="\(Self.policy(nonce: nonce))">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <title>\(title) · Holdfast</title>
            <style nonce="\(nonce)">
            \(Self.style)
            </style>
            </head>
            <body>
            <main>
            \(page.html)</main>
            </body>
            </html>

            """
    }

    /// Returns the content security policy, by which nothing is loaded and nothing runs.
    static func policy(nonce: String) -> String {
        "default-src 'none'; style-src 'nonce-\(nonce)'; base-uri 'none'; form-action 'none'"
    }

    private var title: String { description["name"]?.string ?? results.experiment.key.string }

    /// Adds the name, the status and the hypothesis of the experiment.
    private mutating func addHeading() {
        html += "<p class=\"soft\">Report of an experiment</p>\n<h1>\(Self.escaped(title))</h1>\n"
        var facts = [description["status"]?.string?.replacing("_", with: " ") ?? "", results.experiment.key.string]
        if let owner = description["owner"]?.string { facts.append("owner: \(owner)") }
        if let first = results.days.first, let last = results.days.last {
            let from = Instant(day: first.day).date
            let to = Instant(day: last.day).date
            facts.append(from == to ? "users of \(from)" : "users from \(from) to \(to)")
        }
        html += "<p class=\"soft\">\(facts.map(Self.escaped).joined(separator: " · "))</p>\n"
        if let hypothesis = description["hypothesis"]?.string {
            html += "<p class=\"hypothesis\">\(Self.escaped(hypothesis))</p>\n"
        }
    }

    /// Adds the conclusion, if there is one, and the verdict of the results with its reasons and warnings.
    private mutating func addDecision() {
        if let conclusion = description["conclusion"]?.object {
            let winner = conclusion["winner"]?.string
            addBox(
                "decided", winner.map { "Concluded: everybody gets \($0)" } ?? "Concluded without a winner",
                [
                    conclusion["reason"]?.string ?? "",
                    "By \(conclusion["author"]?.string ?? ""), \(Self.time(conclusion["concluded_at"]?.string ?? "")).",
                ])
        }
        let effectOfWinner = metrics.first?.rows.first { $0.variation == winner }?.effect
        let sentence =
            switch decision {
            case .ship: "Ship \(winner ?? "")" + (effectOfWinner.map { ": \($0)" } ?? "")
            case .stop: "Stop: no variation is better"
            case .continue: "Continue: not certain enough to decide"
            case .invalid: "Invalid: do not decide by these numbers"
            }
        addBox(decision.rawValue, sentence, reasons)
        addList(warnings.filter { !reasons.contains($0) }, class: "warnings")
    }

    /// Adds a box with a decision.
    ///
    /// - Parameter kind: the class in the style sheet.
    private mutating func addBox(_ kind: String, _ sentence: String, _ reasons: [String]) {
        html += "<section class=\"verdict \(kind)\"><h2>\(Self.escaped(sentence))</h2>\n"
        addList(reasons.filter { !$0.isEmpty })
        html += "</section>\n"
    }

    /// Adds a table with the setup of the experiment: the variations, the audience, and the plan.
    private mutating func addTrial() {
        html += "<h2>What was tried</h2>\n"
        if let text = description["description"]?.string { html += "<p>\(Self.escaped(text))</p>\n" }
        let variations = description["variations"]?.array ?? []
        let split = variations.map {
            "\($0.object?["key"]?.string ?? "") \(Self.decimal($0.object?["share"]?.double ?? 0))%"
        }
        let audience = description["audience"]
        let isForAll = audience?.array?.isEmpty ?? (audience?.object == nil)
        var rows = [
            ("Variations", split.joined(separator: ", ") + " of all users"),
            ("Baseline", results.baseline?.name ?? ""),
            ("Traffic", "\(Self.decimal(description["traffic"]?.double ?? 0))% of users are enrolled"),
            ("Audience", isForAll ? "everybody" : audience.map { String(decoding: $0.encoded(), as: UTF8.self) } ?? ""),
        ]
        for (role, title) in [
            ("primary", "Decided by"), ("guardrail", "Must not suffer"), ("secondary", "Also measured"),
        ] {
            let names = metrics.filter { $0.role == role }.map { metric in
                metric.name + (metric.marginText.map { " (margin \($0))" } ?? "")
            }
            if !names.isEmpty { rows.append((title, names.joined(separator: ", "))) }
        }
        rows += rowsOfDecisionRule
        let body = rows.map { name, value in
            "<tr><th scope=\"row\">\(Self.escaped(name))</th><td>\(Self.escaped(value))</td></tr>\n"
        }
        html += "<table class=\"facts\">\n\(body.joined())</table>\n"
    }

    /// The error and the power of the experiment's plan, as rows of a table; empty for the report of one goal.
    private var rowsOfDecisionRule: [(String, String)] {
        guard let plan = description["plan"]?.object, results.query.goal == nil else { return [] }
        let alpha = Self.decimal((plan["alpha"]?.double ?? 0) * 100)
        let power = Self.decimal((plan["power"]?.double ?? 0) * 100)
        let effect = plan["minimum_effect"]?.double.map { ", for effects from \(Self.decimal($0 * 100))%" } ?? ""
        var rows = [("Decision rule", "\(alpha)% error, \(power)% power\(effect)")]
        let changed = plan["changed_since_start"]?.array?.compactMap(\.string) ?? []
        if !changed.isEmpty { rows.append(("Changed since the start", changed.joined(separator: ", "))) }
        return rows
    }

    // MARK: Text

    private mutating func addList(_ lines: [String], class name: String = "") {
        guard !lines.isEmpty else { return }
        let items = lines.map { "<li>\(Self.escaped(Self.sentence($0)))</li>" }.joined(separator: "\n")
        html += "<ul class=\"\(name)\">\n\(items)\n</ul>\n"
    }

    /// Returns a text with a capital letter and a full stop.
    private static func sentence(_ text: String) -> String {
        let isEnded = text.last.map { ".!?".contains($0) } ?? true
        return text.prefix(1).uppercased() + text.dropFirst() + (isEnded ? "" : ".")
    }

    static func decimal(_ number: Double, places: Int = 2) -> String {
        NumberText.decimal(number, places: places, trimmed: true)
    }

    /// Formats a time such as `2026-11-27T12:30:00.000Z` as `2026-11-27 12:30 UTC`.
    static func time(_ text: String) -> String {
        escaped(text.prefix(16).replacing("T", with: " ") + " UTC")
    }

    static func escaped(_ text: String) -> String { SVGDrawing.escaped(text) }

    private static let style = """
        :root {color-scheme:light}
        body {margin:0; background:#fff; color:#1b1e1f; font:14px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap:anywhere}
        main {max-width:760px; margin:0 auto; padding:32px 24px}
        h1 {font-size:26px; line-height:1.2; margin:0 0 4px}
        h2 {font-size:16px; margin:24px 0 6px}
        p {margin:4px 0}
        .soft {color:#565d5f; font-weight:400}
        .hypothesis {font-size:16px; margin-top:12px}
        .verdict {border:1px solid #e2e2dd; border-left:4px solid #5f6b6d; border-radius:6px; padding:12px 16px; margin:16px 0}
        .verdict h2 {margin:0 0 4px; font-size:18px}
        .ship, .decided {border-left-color:#2f7d3a}
        .stop, .invalid {border-left-color:#b01f17}
        ul {margin:4px 0; padding-left:20px}
        table {border-collapse:collapse; width:100%; font-size:13px; margin:6px 0}
        th, td {text-align:left; vertical-align:top; padding:6px 12px 6px 0; border-bottom:1px solid #e2e2dd; font-variant-numeric:tabular-nums}
        .facts th {width:150px; color:#565d5f; font-weight:400}
        .group {padding-top:12px}
        .numbers tbody th[scope=row] {padding-left:12px; font-weight:400}
        .numbers td, .numbers thead th {overflow-wrap:normal; white-space:nowrap}
        .numbers thead th:nth-child(4) {white-space:normal}
        .good {color:#2f7d3a; font-weight:600}
        .bad, .warnings {color:#b01f17; font-weight:600}
        figure {margin:0}
        figure svg {width:100%}
        svg {max-width:100%; height:auto}
        @media (max-width:640px) {.numbers {display:block; overflow-x:auto}}
        footer {margin-top:24px; border-top:1px solid #e2e2dd; padding-top:8px; font-size:12px}
        @page {margin:16mm}
        @media print {main {padding:0; max-width:none} section, figure, tbody, .facts {break-inside:avoid} h2 {break-after:avoid}}
        @media print {body {font-size:12px} table {font-size:11px} th, td {padding:3px 12px 3px 0} h1 {font-size:20px} h2 {margin:14px 0 4px} .verdict {margin:8px 0; padding:8px 12px}}
        """
}

extension ExperimentReport.Row {
    /// - Parameter finding: the verdict about the variation.
    fileprivate init(_ results: ExperimentResults, _ finding: Verdict.Finding) {
        let variation = results.variations[finding.variation]
        let outcome =
            finding.outcome == .uncertain ? "not certain yet" : finding.outcome.rawValue.replacing("_", with: " ")
        self.init(
            variation: variation.name, users: variation.tally.counted,
            mean: variation.tally.counted > 0 ? results.estimate(of: variation)?.mean : nil,
            baseline: results.baseline.flatMap { results.estimate(of: $0)?.mean }, effect: finding.effect,
            pValue: finding.pValue, outcome: outcome)
    }
}

extension ExperimentResults {
    /// Whether the metric compares a share of users.
    fileprivate var isShare: Bool {
        guard let measured else { return query.metric == .conversion }
        return measured.definition.statistic == .rate
    }
}

extension Verdict.Role {
    /// Returns the position of a guardrail's margin on an axis of lifts; `nil` if the margin is not a share.
    fileprivate func margin(isDecrease: Bool) -> Double? {
        guard case .guardrail(.share(let share)) = self else { return nil }
        return isDecrease ? share : -share
    }

    /// Returns the margin of a guardrail as text.
    fileprivate func marginText(in unit: String) -> String? {
        guard case .guardrail(let margin) = self else { return nil }
        return switch margin {
        case .share(let share): NumberText.decimal(share * 100, places: 2, trimmed: true) + "%"
        case .absolute(let number): NumberText.amount(number, in: unit)
        }
    }
}
