import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// `POST /v1/bucket`: hashes an id into a bucket, so that the bucketing of a client can be checked. The response
/// depends only on the request; nothing is stored.
struct BucketEndpoint {
    /// Responds to `{"bucketing_id","parent_id","traffic_allocation"?}` with `{"hash","bucket_value","entity_id"}`.
    /// `entity_id` is `null` if no range contains the bucket value, or if there is no allocation.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let object = try body.object("a request", knowing: ["bucketing_id", "parent_id", "traffic_allocation"])
        let result = Bucketer.bucket(
            bucketingID: Identifier(try object.text("bucketing_id")),
            parentID: Identifier(try object.text("parent_id")),
            trafficAllocation: try Self.allocation(object["traffic_allocation"]))
        return .json([
            "hash": .integer(Int64(result.hash)), "bucket_value": .integer(Int64(result.bucketValue)),
            "entity_id": result.entityID.map { .string($0.string) } ?? .null,
        ])
    }

    /// Parses a traffic allocation in the format of datafiles. Without one, there are no ranges.
    private static func allocation(_ value: JSONValue?) throws(CoreError) -> TrafficAllocation {
        guard let value else { return TrafficAllocation(ranges: []) }
        guard value.array != nil else {
            throw CoreError(
                .invalid, "`traffic_allocation` must be an array; got \(value.kind)", at: ["traffic_allocation"])
        }
        if let count = value.array?.count, count > Bucketer.bucketCount {
            throw CoreError(
                .invalid, "`traffic_allocation` must have at most \(Bucketer.bucketCount) ranges; got \(count)",
                at: ["traffic_allocation"])
        }
        do throws(DatafileError) {
            return try TrafficAllocation(json: value)
        } catch {
            // The parser of datafiles names the member `trafficAllocation`.
            let first = error.problems.first
            let place = first.map {
                JSONPointer.member("traffic_allocation", insteadOf: "trafficAllocation", in: $0.pointer)
            }
            throw CoreError(.invalid, first?.reason ?? "`traffic_allocation` is not usable", at: place)
        }
    }
}

extension JSONPointer {
    /// Returns the pointer with its first member renamed from `former` to `name`.
    fileprivate static func member(_ name: String, insteadOf former: String, in pointer: JSONPointer) -> JSONPointer {
        let parts = pointer.string.split(separator: "/", omittingEmptySubsequences: false).dropFirst().map(String.init)
        return parts.enumerated().reduce(JSONPointer()) { place, part in
            place.appending(part.offset == 0 && part.element == former ? name : part.element)
        }
    }
}
