import Bucketing
import JSON

func bucketingParts() throws -> [Part] {
    let parser = JSONParser()
    let datafile = try Datafile(parser.parse(Samples.datafile))
    let service = DecisionService(datafile: datafile)
    let attributes = try parser.parse(#"{"country":"us","age":32}"#).object
    let user = User(id: Samples.userID, attributes: attributes ?? JSONObject())
    let none: [Identifier: StoredAssignment] = [:]
    let sticky: [Identifier: StoredAssignment] = ["7001": StoredAssignment(variationID: "70011")]
    let experiment = datafile.experiments[0]
    let profile = try parser.parse(Samples.profileBody)
    return [
        Part("json-parse") { try? parser.parse(Samples.profileBody) },
        Part("json-write") { profile.encoded() },
        Part("hash-and-bucket") {
            Bucketer.bucket(
                bucketingID: user.id, parentID: experiment.id, trafficAllocation: experiment.trafficAllocation)
        },
        Part("decide-new") { service.decide("checkout_flag", for: user, stored: none) },
        Part("decide-sticky") { service.decide("checkout_flag", for: user, stored: sticky) },
        Part("decide-with-reasons") {
            service.decide("checkout_flag", for: user, stored: sticky, options: .includeReasons)
        },
        Part("assign") { service.assign(experiment, for: user, stored: none) },
    ]
}
