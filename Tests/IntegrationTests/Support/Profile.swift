import Bucketing

/// A profile as the API writes it.
func profile(_ userID: String, _ assignments: KeyValuePairs<String, String> = [:]) -> String {
    let map = assignments.map { "\"\($0.key)\":{\"variation_id\":\"\($0.value)\"}" }.joined(separator: ",")
    return "{\"user_id\":\"\(userID)\",\"experiment_bucket_map\":{\(map)}}"
}
