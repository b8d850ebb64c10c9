import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/audiences/size`: how many users an audience would admit, before an experiment, a rule or a segment uses
/// it. Only admins may call it, because a caller could find out the attributes of a user by counting suitable
/// conditions.
struct AudienceEndpoint {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    /// Counts the users. The body is `{"audience":…}`, as in the body of an experiment. Scans all users who have
    /// attributes.
    func size(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let value = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let body = try value.object("an audience to count", knowing: ["audience"])
        guard let audience = body["audience"] else {
            throw CoreError(.invalid, "`audience` is required", at: ["audience"])
        }
        let faults = AudienceRules.faults(in: audience, at: ["audience"])
        if let error = CoreError(faults: faults, "nothing was counted") { throw error }
        let schema = projects.schema
        if let name = schema.undefinedSegments(in: audience).first {
            throw CoreError(
                .unprocessable, "no segment has the name '\(name)'", at: ["audience"], mayBeStale: true)
        }
        let page = try await store.read(.users(SegmentMatcher(audience: audience, schema: schema), .size))
        services.attributeMetrics.countScan(of: page.examined)
        return .json(["size": .integer(Int64(page.matches)), "examined": .integer(Int64(page.examined))])
    }
}
