import Testing

/// Returns a profile as the API writes it.
public func profile(_ userID: String, _ assignments: KeyValuePairs<String, String> = [:]) -> String {
    let map = assignments.map { "\"\($0.key)\":{\"variation_id\":\"\($0.value)\"}" }.joined(separator: ",")
    return "{\"user_id\":\"\(userID)\",\"experiment_bucket_map\":{\(map)}}"
}

/// Returns a profile of 1,000 assignments, about 250 KB.
public func largeProfile(_ userID: String) -> String {
    let map = (0..<1_000).map { #""\#($0)":{"variation_id":"\#(String(repeating: "v", count: 220))"}"# }
    return #"{"user_id":"\#(userID)","experiment_bucket_map":{\#(map.joined(separator: ","))}}"#
}

/// The experiment `checkout` and requests for assignments in it.
public enum AssignSamples {
    public static let definition =
        #"{"id":"7001","variations":[{"key":"control","id":"70011"},{"key":"new","id":"70012"}]}"#

    public static func weights(_ control: Int, _ new: Int) -> String {
        #"{"variations":[{"key":"control","weight":\#(control)},{"key":"new","weight":\#(new)}]}"#
    }

    public static func ask(_ userID: String) -> String {
        #"{"user_id":"\#(userID)","experiment":"checkout"}"#
    }
}

/// A datafile with the experiment `checkout` and the event `purchase`, and the header fields of the Agent's clients.
public enum AgentSamples {
    public static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","attributes":[],"audiences":[],"groups":[],
        "featureFlags":[],"rollouts":[],"events":[{"id":"e1","key":"purchase","experimentIds":[]}],
        "experiments":[{"id":"7","key":"checkout","layerId":"8","status":"Running","audienceIds":[],
        "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
        "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
        """#
    public static let fields = ["X-Optimizely-SDK-Key: tests", "Content-Type: application/json"]
}

/// Changes of datafiles, and the server-sent events that announce them.
public enum ChangeSamples {
    public static func put(_ server: any TestServer, weight: Int = 5_000) throws {
        let response = try server.request(
            "PUT", "/v1/experiments/checkout",
            #"{"id":"7001","variations":[{"key":"control","weight":\#(weight)},{"key":"new","weight":\#(10_000 - weight)}]}"#
        )
        #expect(response.status < 300, "\(response.text)")
    }

    public static func event(_ revision: Int) -> String {
        "event: datafile\ndata: {\"sdk_key\":\"default\",\"revision\":\"\(revision)\"}\n\n"
    }

    public static func empty(revision: String, sdkKey: String) -> String {
        #"{"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"\#(sdkKey)","attributes":[],"events":[],"#
            + #""audiences":[],"groups":[],"experiments":[],"featureFlags":[]}"#
    }
}
