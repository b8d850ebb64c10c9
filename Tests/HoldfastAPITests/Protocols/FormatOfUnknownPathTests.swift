import APITestSupport
import JSON
import Testing

/// A path that a protocol does not have, below its prefix, is refused in its format.
@Suite struct FormatOfUnknownPathTests {
    @Test(arguments: [
        ("/ofrep/v1/nope", "errorCode"), ("/ofrep", "errorCode"), ("/api/features/key", "error"), ("/sub", "error"),
        ("/get_feature_flags", "code"), ("/register_events/x", "code"), ("/segment/v1/identify", "success"),
        ("/v1/decide/x", "error"), ("/v1/notifications/x", "error"), ("/sdk/v2/events", "detail"),
        ("/v1/nope", "detail"),
    ])
    func `An unknown path has the format of its protocol`(path: String, member: String) throws {
        let server = try startTestServer()
        let response = try server.request("POST", path, "{}")
        #expect(response.status == 404 && !response[member].isNull, "\(response.text)")
        server.stop()
    }
}
