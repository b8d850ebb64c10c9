import Bucketing

/// A profile as the API writes it.
func profile(_ userID: String, _ assignments: KeyValuePairs<String, String> = [:]) -> String {
    let map = assignments.map { "\"\($0.key)\":{\"variation_id\":\"\($0.value)\"}" }.joined(separator: ",")
    return "{\"user_id\":\"\(userID)\",\"experiment_bucket_map\":{\(map)}}"
}

/// A profile of 1,000 assignments, which is 250 KB.
func largeProfile(_ userID: String) -> String {
    let map = (0..<1_000).map { #""\#($0)":{"variation_id":"\#(String(repeating: "v", count: 220))"}"# }
    return #"{"user_id":"\#(userID)","experiment_bucket_map":{\#(map.joined(separator: ","))}}"#
}
