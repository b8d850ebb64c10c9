import Definitions
import HTTPServer
import JSON

/// Links from errors to the articles of the manual that explain them. A test follows every link.
enum ManualLink {
    /// Returns the path of the article and heading, such as `/manual/Profiles#overrides`; `nil` if the manual does not
    /// explain the error.
    ///
    /// - Parameters:
    ///   - topic: the topic of the error, if it has one.
    ///   - pattern: the pattern of the route; `nil` if no route has the path.
    ///   - pointer: the invalid member of the body; `nil` if the body is not at fault.
    static func path(
        for status: Status, about topic: CoreError.Topic? = nil, on pattern: String?, at pointer: JSONPointer?
    ) -> String? {
        let found = heading(for: status, about: topic, on: pattern, at: pointer)
        return found.map { "/manual/" + $0 }
    }

    /// Returns the article and heading. The first of these that has a heading counts: the topic, the status, the status
    /// on the route, the member, the route.
    private static func heading(
        for status: Status, about topic: CoreError.Topic?, on pattern: String?, at pointer: JSONPointer?
    ) -> String? {
        if let topic { return heading(of: topic) }
        if let found = byStatus[status.code] { return found }
        guard let pattern else { return status == .notFound ? "API#routes" : nil }
        if let found = longestPrefix(of: pattern, in: byStatusAndRoute[status.code] ?? []) { return found }
        if hasDefinitions(pattern), let pointer, let found = heading(of: pointer) { return found }
        return longestPrefix(of: pattern, in: byRoute)
    }

    /// All articles and headings to which errors may link.
    static var headings: Set<String> {
        Set(CoreError.Topic.allCases.map(heading(of:))).union(byStatus.values).union(members.values)
            .union((byStatusAndRoute.values.joined() + byRoute).map(\.heading))
    }

    private static func heading(of topic: CoreError.Topic) -> String {
        switch topic {
        case .conditions: "Profiles#conditional-changes"
        case .moves: "Experiments#changes-that-move-users"
        case .sharedID: "Experiments#an-id-belongs-to-one-project"
        }
    }

    /// Returns the heading for the innermost member that has one.
    private static func heading(of pointer: JSONPointer) -> String? {
        pointer.string.split(separator: "/").reversed().lazy.compactMap { members[String($0)] }.first
    }

    /// Whether bodies of the route are definitions, so that ``members`` explains their members.
    private static func hasDefinitions(_ pattern: String) -> Bool {
        ["/v1/experiments", "/v1/flags", "/v1/holdouts", "/v1/metrics", "/v1/definitions"].contains {
            pattern.hasPrefix($0)
        }
    }

    /// Returns the heading of the longest prefix of a pattern in a table.
    private static func longestPrefix(of pattern: String, in table: [(prefix: String, heading: String)]) -> String? {
        table.filter { pattern.hasPrefix($0.prefix) }.max { $0.prefix.utf8.count < $1.prefix.utf8.count }?.heading
    }

    /// The headings for statuses that have the same reason on every route.
    private static let byStatus: [UInt16: String] = [
        401: "Access#tokens", 405: "API#routes", 412: "Profiles#conditional-changes", 413: "Limits#memory",
        415: "API#rules", 501: "API#rules", 502: "Edge#while-the-upstream-is-away",
        503: "Operations#health", 504: "Operations#health",
    ]

    /// The headings for members of definitions.
    private static let members: [String: String] = [
        "adjustment": "Metrics#adjust-it-by-what-is-known-from-before",
        "assignment_ttl": "Profiles#how-long-assignments-last", "audience": "AttributesAndSegments#conditions",
        "bandit": "Bandits#members-of-a-bandit", "enrollment": "Experiments#close-enrollment",
        "group": "Experiments#mutually-exclusive-experiments", "plan": "Experiments#plan",
        "ramp": "Ramps#members-of-a-ramp", "schedule": "Ramps#start-and-end-on-time",
        "status": "Experiments#pause-archive-and-restore",
        "traffic": "Experiments#traffic-and-weights", "weight": "Experiments#traffic-and-weights",
        "weights": "Experiments#traffic-and-weights",
    ]

    /// The headings for errors with a status, by the beginning of the route's path.
    private static let byStatusAndRoute: [UInt16: [(prefix: String, heading: String)]] = [
        403: [("/", "Access#scopes"), ("/v1/proposals", "Access#a-second-person-for-running-experiments")]
    ]

    /// The headings for other errors, by the beginning of the route's path.
    private static let byRoute: [(prefix: String, heading: String)] = [
        ("/datafiles/", "OptimizelySDK#what-an-sdk-asks-for"),
        ("/edge/", "Edge#what-is-answered-where"),
        ("/metrics", "Monitoring#set-up"),
        ("/predict/", "Bandits#sdks-that-ask-for-predictions"),
        ("/sdk/", "OptimizelySDK#events-in-detail"),
        ("/ups/", "UserProfileService#look-up-and-save"),
        ("/v1/assign", "Experiments#create-and-assign"),
        ("/v1/attributes", "AttributesAndSegments#types"),
        ("/v1/audiences", "AttributesAndSegments#conditions"),
        ("/v1/audit", "Access#audit-log"),
        ("/v1/bucket", "Concepts#how-a-user-gets-a-variation"),
        ("/v1/changes", "API#routes"),
        ("/v1/datafile", "Datafiles#activate-a-datafile"),
        ("/v1/definitions", "DefinitionsAsCode#plan-and-apply"),
        ("/v1/evaluations", "Flags#members-of-a-flag"),
        ("/v1/events", "EventsAndResults#exposures-and-goals"),
        ("/v1/experiments", "Experiments#members-of-an-experiment"),
        ("/v1/experiments/{key}/conclude", "Experiments#conclude"),
        ("/v1/experiments/{key}/goals", "EventsAndResults#results"),
        ("/v1/experiments/{key}/import", "Experiments#move-a-running-test-here"),
        ("/v1/experiments/{key}/plan", "EventsAndResults#power"),
        ("/v1/experiments/{key}/preview", "Experiments#preview-a-change"),
        ("/v1/experiments/{key}/ramp", "Ramps#change-and-stop-a-ramp-by-hand"),
        ("/v1/experiments/{key}/reopen", "Experiments#conclude"),
        ("/v1/experiments/{key}/report.html", "EventsAndResults#results"),
        ("/v1/experiments/{key}/results", "EventsAndResults#results"),
        ("/v1/exposures", "EventsAndResults#exposures-and-goals"),
        ("/v1/feed", "Feed#follow-it"),
        ("/v1/flags", "Flags#members-of-a-flag"),
        ("/v1/holdouts", "Experiments#holdouts"),
        ("/v1/logins", "Profiles#users-who-log-in"),
        ("/v1/metrics", "Metrics#define-a-metric"),
        ("/v1/overview", "Console#screens"),
        ("/v1/profiles", "Profiles#save-and-look-up"),
        ("/v1/profiles/attributes", "AttributesAndSegments#set-attributes"),
        ("/v1/profiles/{user_id}/attributes", "AttributesAndSegments#set-attributes"),
        ("/v1/profiles/{user_id}/evaluations", "Flags#why-a-user-has-a-value"),
        ("/v1/profiles/{user_id}/events", "EventsAndResults#export-and-retention"),
        ("/v1/profiles/{user_id}/experiments", "Profiles#overrides"),
        ("/v1/profiles/{user_id}/experiments/{experiment}/explain", "Experiments#why-a-user-gets-a-variation"),
        ("/v1/profiles/{user_id}/export", "Profiles#export-and-import"),
        ("/v1/profiles/{user_id}/exposures", "EventsAndResults#export-and-retention"),
        ("/v1/profiles/{user_id}/merge", "Profiles#users-who-log-in"),
        ("/v1/projects", "API#projects"),
        ("/v1/proposals", "Access#a-second-person-for-running-experiments"),
        ("/v1/segments", "AttributesAndSegments#segments"),
        ("/v1/sticky", "GrowthBook#sticky-buckets"),
        ("/v1/sticky-values", "Statsig#persistent-storage"),
        ("/v1/tokens", "Access#tokens"),
        ("/v1/users", "Profiles#save-and-look-up"),
        ("/v1/webhooks", "Webhooks#make-a-webhook"),
        ("/v1/whoami", "Access#tokens"),
    ]
}
