import Bucketing
import Chronology
import Storage

/// What the parts work on: a user with three assignments, as in the comparison of whole servers.
enum Samples {
    static let userID: Identifier = "user123456"

    static let map: [Identifier: Identifier] = ["10001": "20017", "10002": "30042", "7001": "70011"]

    static var record: ProfileRecord {
        let time = Instant(milliseconds: 1_700_000_000_000)
        return ProfileRecord(
            map.mapValues {
                Assignment(variationID: $0, source: .saved, assignedAt: time, updatedAt: time, expiresAt: nil)
            })
    }

    static let profileBody = Array(
        #"{"user_id":"user123456","experiment_bucket_map":{"10001":{"variation_id":"20017"},"10002":{"variation_id":"30042"},"7001":{"variation_id":"70011"}}}"#
            .utf8)

    static let head = Array("GET /v1/profiles/user123456 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n".utf8)

    static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"1","groups":[],"events":[],"attributes":[],
        "audiences":[],"typedAudiences":[{"id":"20","name":"grown-up in the US","conditions":["and",
        {"type":"custom_attribute","name":"country","match":"exact","value":"us"},
        {"type":"custom_attribute","name":"age","match":"ge","value":18}]}],
        "experiments":[{"id":"7001","key":"checkout","layerId":"30","status":"Running","audienceIds":["20"],
        "forcedVariations":{},"variations":[{"id":"70011","key":"control","featureEnabled":false,"variables":[]},
        {"id":"70012","key":"new","featureEnabled":true,"variables":[{"id":"40","value":"7"}]}],
        "trafficAllocation":[{"entityId":"70011","endOfRange":5000},{"entityId":"70012","endOfRange":10000}]}],
        "featureFlags":[{"id":"50","key":"checkout_flag","experimentIds":["7001"],"rolloutId":"",
        "variables":[{"id":"40","key":"limit","type":"integer","defaultValue":"5"}]}],"rollouts":[]}
        """#
}
