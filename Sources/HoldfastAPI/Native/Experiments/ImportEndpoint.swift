import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/experiments/{key}/import`: imports exposures and events of the experiment, of any age, from another
/// system. A large import consists of several requests. Each has one part of the data, and the same start and the same
/// shares of the variations.
struct ImportEndpoint {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    /// Stores one part of an import as a whole. If the store fails in between, the beginning stays stored, and the
    /// sender repeats the part. A repeated part is not counted twice.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.key()
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let author = call.author(request)
        let project = try projects.project(named: request.sdkKey, for: call.access)
        guard let experiment = Experiment.find(Identifier(key), in: project.compiled) else {
            throw Experiment.unknown(key, in: project.compiled)
        }
        try call.approvalPolicy.checkImport(into: experiment, of: project)
        let input = try ExperimentImport(
            body, into: experiment, of: project, limit: services.options.elementLimit, now: services.store.clock.now())
        let hasExposures = !input.exposures.isEmpty
        let note = hasExposures || !input.events.isEmpty ? input.note(experiment.key) : nil
        let start = try await store.write(
            .beginImport(into: experiment.id, input.period, hasExposures: hasExposures, note, by: author))
        try Self.check(start, experiment)
        let exposures = try await services.reporter.record(input.exposures.map { .exposure($0) })
        let events = try await services.reporter.record(input.events.map { .goal($0) })
        return .json([
            "experiment_id": .string(experiment.id.string), "experiment_key": .string(experiment.key.string),
            "started_at": .string(input.period.since.rfc3339), "exposures": Self.counts(exposures),
            "events": Self.counts(events),
        ])
    }

    /// Returns the numbers of new and of repeated events.
    private static func counts(_ outcomes: [EventOutcome]) -> JSONValue {
        let repeated = outcomes.count { $0 == .repeated }
        return ["stored": .integer(Int64(outcomes.count - repeated)), "repeated": .integer(Int64(repeated))]
    }

    /// - Throws: 409 if the import cannot begin or continue.
    private static func check(_ start: ImportStart, _ experiment: Experiment) throws(CoreError) {
        switch start {
        case .begun, .continued: return
        case .differs(let period):
            let shares = experiment.variations.map { variation in
                "\(variation.key) \(Double(period.allocation.shares[variation.id] ?? 0) / 100)%"
            }
            throw CoreError(
                .conflict,
                "each part of an import must have the same `started_at` and `shares`; those before had "
                    + "\(period.since.rfc3339) and \(shares.joined(separator: ", "))", at: ["started_at"])
        case .hasUsers:
            throw CoreError(
                .conflict,
                "an import must come before the first exposure; users have been exposed to '\(experiment.key)' already")
        case .isKnown(let time):
            throw CoreError(
                .conflict,
                "`started_at` must be before \(time.rfc3339), from when on this server has the experiment "
                    + "'\(experiment.key)'", at: ["started_at"])
        }
    }
}
