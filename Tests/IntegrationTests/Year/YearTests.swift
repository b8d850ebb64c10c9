import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// A year of a team in fast motion, on three processes with one database: drafts, ramps, an alarm, conclusions and
/// re-openings, and a holdout, while users come, log in and are erased, events arrive late and twice, and processes are killed.
@Suite struct YearTests {
    @Test func `In a year nobody moves, and all totals and verdicts are those of an independent count`() throws {
        let team = try Team()
        for week in 0..<Team.weeks {
            try team.begin(week)
            try team.administer()
            try team.serveUsers()
            if week % 4 == 3 {
                // Exposures of decisions are stored in the background.
                try team.checkHoldout()
                try team.killServer()
            }
            if week % 13 == 12 { try team.checkTotals() }
        }
        try team.checkConclusions()
        try team.checkVerdicts()
        try team.checkAssignments()
        try team.checkHoldout()
        // What must have happened for this to say something.
        let ledger = team.ledger
        #expect(ledger.people.count > 1_500 && ledger.erased > 40 && ledger.merged > 300)
        #expect(team.experiments.allSatisfy { $0.isBroken == ($0.alarmedIn != nil) })
        #expect(team.experiments.filter { $0.frozen != nil }.count >= 6)
        let holdout = ledger.totals(of: YearHoldout.key, ["off", "rest"])
        #expect(holdout.values.allSatisfy { $0.users > 100 && $0.crossed > 20 })
        team.stop()
    }
}

/// What the team knows of one of its experiments.
struct TeamExperiment {
    let number: Int
    /// Weeks, counted from the beginning of the year.
    let start: Int
    /// The share of users who buy, by variation.
    let rates: [String: Double]
    /// Whether the app loses the exposures to variation `b`.
    let isBroken: Bool
    let reopensIn: Int?
    /// Since when it runs, after its start or its reopening, in milliseconds.
    var runningSince: Int64 = .max
    var alarmedIn: Int?
    /// The totals at the conclusion.
    var frozen: [String: YearLedger.Total]?

    var key: String { "e\(number)" }
    var id: String { "\(100 + number)" }
    var concludesIn: Int { start + 9 }
    var winner: String? { rates["b", default: 0] > rates["a", default: 0] ? "b" : nil }

    /// Whether it measures the metric from the beginning, or only later, so that what happened before is filled in.
    var measuresIn: Int { number % 2 == 0 ? start - 1 : start + 4 }

    func isConcluded(in week: Int) -> Bool {
        !isBroken && week >= concludesIn && week < reopensIn ?? .max
    }

    /// Whether users see it: until some weeks after its end.
    func isVisited(in week: Int) -> Bool { (start...start + 16).contains(week) }

    var definition: String {
        let steps =
            isBroken
            ? #"{"traffic":99,"for":"300d"},{"traffic":100}"#
            : #"{"traffic":30,"for":"3d"},{"traffic":60,"for":"3d"},{"traffic":100}"#
        return """
            {"id":"\(id)","status":"draft","variations":[{"key":"a","id":"\(id)a"},{"key":"b","id":"\(id)b"}],\
            "ramp":{"steps":[\(steps)]}}
            """
    }
}
