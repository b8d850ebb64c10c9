import Bucketing
import HTTPServer
import JSON

/// `POST /v1/bucket`: the hash itself. Pure: stores nothing, and knows of no user.
struct BucketEndpoint {
    /// `{"bucketing_id","parent_id","traffic_allocation"?}` to `{"hash","bucket_value","entity_id"}`; the entity is
    /// `null` when no range has the value, or none were given.
    func post(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let body = try request.withBody { bytes throws(Problem) in try ProfileBody.parse(bytes) }
            let object = try body.object("a request", knowing: ["bucketing_id", "parent_id", "traffic_allocation"])
            let result = Bucketer.bucket(
                bucketingID: Identifier(try object.text("bucketing_id")),
                parentID: Identifier(try object.text("parent_id")),
                trafficAllocation: try Self.allocation(object["traffic_allocation"]))
            let answer: JSONValue = [
                "hash": .integer(Int64(result.hash)), "bucket_value": .integer(Int64(result.bucketValue)),
                "entity_id": result.entityID.map { .string($0.string) } ?? .null,
            ]
            call.answer(json: answer.encoded())
        } catch {
            call.fail(error)
        }
    }

    private static func allocation(_ value: JSONValue?) throws(Problem) -> TrafficAllocation {
        guard let value else { return TrafficAllocation(ranges: []) }
        guard value.array != nil else {
            throw Problem(
                .badRequest, "`traffic_allocation` must be an array; got \(value.kind)", at: ["traffic_allocation"])
        }
        if let count = value.array?.count, count > Bucketer.bucketCount {
            throw Problem(
                .badRequest, "`traffic_allocation` must have at most \(Bucketer.bucketCount) ranges; got \(count)",
                at: ["traffic_allocation"])
        }
        do throws(DatafileError) {
            return try TrafficAllocation(json: value)
        } catch {
            let first = error.problems.first
            let place = first.map { JSONPointer.member("traffic_allocation", insteadOf: "trafficAllocation", in: $0.pointer) }
            throw Problem(.badRequest, first?.reason ?? "`traffic_allocation` is not usable", at: place)
        }
    }
}

extension JSONPointer {
    /// The same place below another first member.
    fileprivate static func member(_ name: String, insteadOf former: String, in pointer: JSONPointer) -> JSONPointer {
        let parts = pointer.string.split(separator: "/", omittingEmptySubsequences: false).dropFirst().map(String.init)
        return parts.enumerated().reduce(JSONPointer()) { place, part in
            place.appending(part.offset == 0 && part.element == former ? name : part.element)
        }
    }
}
