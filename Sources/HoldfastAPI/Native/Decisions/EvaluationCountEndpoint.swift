import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// `POST /v1/evaluations/counts`: an app reports how often it evaluated each flag, by result. The counts are kept in
/// this process for `GET /metrics`; nothing is stored.
struct EvaluationCountEndpoint {
    let projects: ProjectView
    let metrics: ReportedEvaluations
    let uses: UseRecorder
    /// The maximum number of reports in a request, and of counts in a report.
    let limit: Int

    /// Counts the evaluations of one report or of an array of them. A report whose `id` is known is not counted again.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let list = try ReportList(request, limit: limit)
        let sdkKey = request.sdkKey
        let reports = try list.parse { value, place throws(CoreError) in
            try parse(value, sdkKey: sdkKey, call.access, at: place)
        }
        // If a report may name a new project, throws before anything is counted, so that the route reads the newest
        // definitions and calls this handler again.
        if !call.isUpToDate {
            for case .failure(let error) in reports where error.mayBeStale { throw error }
        }
        return try list.response(
            reports.map { report in
                switch report {
                case .success(let report):
                    let isNew = metrics.add(report.counts, id: report.id)
                    for (series, _) in report.counts { uses.note(series) }
                    return (report.id, .success(isNew ? .stored : .repeated))
                case .failure(let error):
                    return (nil, .failure(EventRefusal(error, isRetriable: error.kind == .notFound)))
                }
            })
    }

    // MARK: Parsing

    /// The counts of one report.
    private struct Report {
        /// The id by which a repeated report is recognized.
        var id: Identifier
        var counts: [(series: ReportedEvaluations.Series, count: UInt64)]
    }

    /// Parses `{"id","sdk_key"?,"counts":[{"flag_key","variation_key"?,"reason","count"}]}`.
    ///
    /// - Parameter sdkKey: the project of a report that names none.
    private func parse(
        _ value: JSONValue, sdkKey: String?, _ access: ProjectAccess, at place: JSONPointer
    ) throws(CoreError) -> Report {
        let object = try value.object("a report", knowing: ["id", "sdk_key", "counts"], at: place)
        let id = try object.text("id", in: place)
        guard EventInput.isName(id, limit: 128) else {
            throw CoreError(
                .invalid, "`id` must be 1 to 128 bytes long, without NUL; got \(id.utf8.count) bytes",
                at: place.appending("id"))
        }
        let project = try projects.project(
            named: try object.optionalText("sdk_key", in: place) ?? sdkKey, for: access)
        let pointer = place.appending("counts")
        guard let list = object["counts"]?.array, list.count <= limit else {
            let found = object["counts"].map { $0.array.map { "\($0.count)" } ?? $0.kind } ?? "nothing"
            throw CoreError(
                .invalid, "`counts` must be an array of at most \(limit) elements; got \(found)", at: pointer)
        }
        var counts: [(ReportedEvaluations.Series, UInt64)] = []
        for (index, element) in list.enumerated() {
            counts.append(try Self.count(element, in: project, at: pointer.appending(index)))
        }
        return Report(id: Identifier(id), counts: counts)
    }

    /// Parses one element of `counts`.
    private static func count(
        _ value: JSONValue, in project: Project, at place: JSONPointer
    ) throws(CoreError) -> (ReportedEvaluations.Series, UInt64) {
        let object = try value.object("a count", knowing: ["flag_key", "variation_key", "reason", "count"], at: place)
        let flagKey = try object.text("flag_key", in: place)
        let variationKey = try object.optionalText("variation_key", in: place)
        let word = try object.text("reason", in: place)
        guard let reason = ReportedEvaluations.Reason(rawValue: word) else {
            let known = ReportedEvaluations.Reason.allCases.map(\.rawValue).joined(separator: ", ")
            throw CoreError(
                .invalid, "`reason` must be one of \(known); got '\(word.shortened(to: CoreError.longestQuote))'",
                at: place.appending("reason"))
        }
        guard let count = object["count"]?.integer, (1...maximumCount).contains(count) else {
            let found = object["count"].map { $0.integer.map { "\($0)" } ?? $0.kind } ?? "nothing"
            throw CoreError(
                .invalid, "`count` must be a whole number from 1 to \(maximumCount); got \(found)",
                at: place.appending("count"))
        }
        // Only names in the datafile become labels, because apps cannot keep a token secret and anyone could send
        // names.
        let flag = project.datafile.flag(key: Identifier(flagKey))
        let variation = variationKey.flatMap { key in flag?.variations.first { $0.key.string == key } }
        let series = ReportedEvaluations.Series(
            sdkKey: project.sdkKey, flagKey: flag?.key, variationKey: variation?.key, reason: reason)
        return (series, UInt64(count))
    }

    /// The maximum of one count, so that the sum of many counts does not overflow.
    private static let maximumCount: Int64 = 1_000_000_000_000
}
