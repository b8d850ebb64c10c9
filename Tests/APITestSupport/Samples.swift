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
