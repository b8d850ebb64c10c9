import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/overview`: the list of experiments for the console, each with its users, verdict and alarms; filtered,
/// sorted and paged.
struct OverviewEndpoint {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private static let parameters = ["q", "status", "owner", "tag", "sort", "order", "offset", "limit"]
    /// The members of an experiment's description that the overview also has.
    private static let members = [
        "id", "key", "name", "status", "enrollment", "variations", "traffic", "owner", "tags", "group", "schedule",
        "ramp", "bandit", "conclusion",
    ]
    /// The number of days for which an experiment's users are shown.
    private static let days = 30
    /// The maximum number of owners, and of tags, in a response.
    private static let maximumLabels = 100
    /// The number of experiments in a response, by default and at most.
    private static let defaultLimit = 25
    private static let maximumLimit = 100
    /// The maximum number of experiments before the page.
    private static let maximumOffset = 1_000_000_000

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let selection = try Self.selection(request)
        let project = try projects.project(named: request.sdkKey, for: call.access)
        // The list is sorted by users only on request, so the users of all experiments are usually not read.
        let enrolled = [.users, .day].contains(selection.order) ? try await store.read(.enrolledUsers) : [:]
        let found = services.monitor.findings.filter { $0.sdkKey == project.sdkKey }
        let findings = Dictionary(found.map { ($0.key, $0) }, uniquingKeysWith: { first, _ in first })
        let page = try await services.compute { selection.select(from: project, enrolled, findings) }
        let now = services.store.clock.now()
        var rows: [JSONValue] = []
        for experiment in page.experiments {
            let overview = try await ExperimentOverview.read(experiment, of: project, at: now, store)
            rows.append(Self.describe(experiment, project, overview, findings[experiment.key]?.warnings ?? []))
        }
        var statuses = JSONObject()
        for (status, count) in page.statuses.sorted(by: { $0.key < $1.key }) {
            statuses[status] = .integer(Int64(count))
        }
        let labels = ExperimentSelection.labels(of: project, limit: Self.maximumLabels)
        return .json([
            "total": .integer(Int64(page.total)), "experiments": .array(rows), "statuses": .object(statuses),
            "owners": .array(labels.owners.map { .string($0) }), "tags": .array(labels.tags.map { .string($0) }),
        ])
    }

    /// Parses the query.
    private static func selection(_ request: borrowing Request) throws(CoreError) -> ExperimentSelection {
        let query = try request.query(knowing: parameters)
        var selection = ExperimentSelection()
        selection.text = query["q"].flatMap { $0.isEmpty ? nil : $0.lowercased() }
        for name in query["status"]?.split(separator: ",").map(String.init) ?? [] {
            guard let status = ExperimentStatus(name: name) else {
                let known = ExperimentStatus.allCases.map(\.name).joined(separator: ", ")
                throw CoreError(.invalid, "`status` must be some of \(known), separated by commas; got '\(name)'")
            }
            selection.statuses.insert(status.name)
        }
        selection.owner = query["owner"]
        selection.tag = query["tag"].map { Identifier($0) }
        try setOrder(query, of: &selection)
        if let text = query["offset"] {
            guard let offset = Int(text), (0...maximumOffset).contains(offset) else {
                throw CoreError(.invalid, "`offset` must be a whole number from 0; got '\(text)'")
            }
            selection.offset = offset
        }
        selection.limit = query["limit"] == nil ? defaultLimit : try Request.pageLimit(query, max: maximumLimit)
        return selection
    }

    /// Parses `sort` and `order`.
    private static func setOrder(
        _ query: [String: String], of selection: inout ExperimentSelection
    ) throws(CoreError) {
        if let name = query["sort"] {
            guard let order = ExperimentSelection.Order(rawValue: name) else {
                let known = ExperimentSelection.Order.allCases.map(\.rawValue).joined(separator: ", ")
                throw CoreError(.invalid, "`sort` must be one of \(known); got '\(name)'")
            }
            selection.order = order
        }
        let direction = query["order"] ?? "desc"
        guard ["asc", "desc"].contains(direction) else {
            throw CoreError(.invalid, "`order` must be asc or desc; got '\(direction)'")
        }
        selection.isDescending = direction == "desc"
    }

    /// Returns a row of the list.
    ///
    /// - Parameter warnings: the last findings of the monitor, which are shown as alarms beside the overview's own.
    private static func describe(
        _ experiment: Experiment, _ project: Project, _ overview: ExperimentOverview,
        _ warnings: Set<ExperimentWarning>
    ) -> JSONValue {
        let description = experiment.description(in: project).object ?? JSONObject()
        var object = JSONObject()
        for member in members { object[member] = description[member] }
        object["users"] = .integer(Int64(overview.users))
        object["first_day"] = overview.days.first.map { .string($0.day.date) } ?? .null
        object["days"] = .array(
            overview.days.suffix(days).map { ["day": .string($0.day.date), "users": .integer(Int64($0.users))] })
        object["verdict"] =
            overview.decision.map { decision in
                [
                    "decision": .string(decision.rawValue),
                    "winner": overview.winner.map { .string($0.string) } ?? .null,
                    "lift": overview.lift.map { .number($0) } ?? .null,
                ]
            } ?? .null
        object["alarms"] = .array(
            ExperimentWarning.allCases.filter { warnings.contains($0) || overview.alarms[$0] != nil }.map { warning in
                ["kind": .string(warning.rawValue), "message": .string(overview.alarms[warning] ?? warning.sentence)]
            })
        return .object(object)
    }
}

extension ExperimentWarning {
    /// The message of an alarm, if the overview has none with details.
    fileprivate var sentence: String {
        switch self {
        case .sampleRatio: "the users are not split as the traffic allocation says"
        case .guardrail: "a guardrail is worse than its margin allows"
        case .primary: "a primary metric is worse"
        case .stalled: "the ramp or the schedule does not go on"
        case .noExposures: "nobody was enrolled for an hour"
        case .exposuresAfterEnd: "it is concluded, and something still shows its variations"
        }
    }
}
