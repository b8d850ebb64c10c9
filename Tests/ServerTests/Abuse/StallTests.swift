import APITestSupport
import Foundation
import Synchronization
import Testing

/// Requests that take much work, and those who wait beside them on the same event loop.
@Suite struct StallTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"), ["--event-loops", "1"])
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"id":"7","variations":["a","b"]}"#).status == 201)
        let values = (0..<1_000).map { #""v\#($0)""# }.joined(separator: ",")
        let selection = #"{"type":"selection","multiple":true,"values":[\#(values)]}"#
        #expect(try server.request("PUT", "/v1/attributes/sel", selection).status == 201)
    }

    /// How long a request took, and the longest that somebody else waited for a response meanwhile.
    private func measure(
        _ method: String, _ target: String, _ body: String, expecting status: Int
    ) throws -> (total: Duration, stall: Duration) {
        let (client, other) = (try server.client(), try server.client())
        #expect(try other.request("GET", "/livez").status == 200)
        let outcome = Mutex<Result<(response: TestResponse, total: Duration), any Error>?>(nil)
        Thread.detachNewThread {
            let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
            let start = ContinuousClock.now
            let result = Result {
                (response: try client.request(method, target, body, fields: fields), total: ContinuousClock.now - start)
            }
            outcome.withLock { $0 = result }
        }
        var stall = Duration.zero
        while outcome.withLock({ $0 == nil }) {
            let start = ContinuousClock.now
            #expect(try other.request("GET", "/livez").status == 200)
            stall = max(stall, ContinuousClock.now - start)
        }
        let (response, total) = try #require(outcome.withLock { $0 }).get()
        #expect(response.status == status, "\(response.text.prefix(300))")
        return (total, stall)
    }

    private static func condition(_ name: String, _ value: Int = 1) -> String {
        #"{"type":"custom_attribute","name":"\#(name)","match":"exact","value":\#(value)}"#
    }

    /// A datafile with one experiment for an audience of so many conditions.
    private static func datafile(conditions: Int) -> String {
        let list = (0..<conditions).map { condition("c\($0)") }.joined(separator: ",")
        return """
            {"version":"4","accountId":"1","projectId":"2","revision":"3","attributes":[],"audiences":[],"events":[],\
            "groups":[],"typedAudiences":[{"id":"A","name":"A","conditions":["or",\(list)]}],"experiments":[{"id":"7",\
            "key":"e","layerId":"","status":"Running","audienceIds":["A"],"forcedVariations":{},\
            "variations":[{"id":"71","key":"a"}],"trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
            """
    }

    private func putDatafile(conditions: Int) throws {
        let fields = ["X-Optimizely-SDK-Key: default"]
        let response = try server.client().request(
            "PUT", "/v1/datafile", Self.datafile(conditions: conditions), fields: fields)
        #expect(response.status == 200, "\(response.text)")
    }

    /// What it takes to read a body is no more than to read any other of its length. The bounds are generous: the
    /// product is measured as it is built for release.
    private func expectStall(
        like base: (total: Duration, stall: Duration), of measured: (total: Duration, stall: Duration),
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(
            measured.stall < base.total * 3 + .milliseconds(300), "\(measured), \(base)", sourceLocation: sourceLocation
        )
    }

    @Test func `A body of many attributes or values keeps others waiting for no longer than it takes to read it`()
        throws
    {
        try putDatafile(conditions: 1_000)
        let attributes = (0..<40_000).map { #""k\#($0)":1"# }.joined(separator: ",")
        let base = try measure("POST", "/v1/profiles/lookup", "{\(attributes)}", expecting: 400)
        let assign = #"{"user_id":"u","experiment":"e","attributes":{\#(attributes)}}"#
        expectStall(like: base, of: try measure("POST", "/v1/assign", assign, expecting: 200))
        let activate = #"{"userId":"u","userAttributes":{\#(attributes)}}"#
        expectStall(like: base, of: try measure("POST", "/v1/activate?experimentKey=e", activate, expecting: 200))
        expectStall(
            like: base, of: try measure("PATCH", "/v1/profiles/u/attributes", "{\(attributes)}", expecting: 422))
        let values = (0..<60_000).map { "v\($0 % 1_000)" }.joined(separator: ";")
        expectStall(
            like: base, of: try measure("PATCH", "/v1/profiles/u/attributes", #"{"sel":"\#(values)"}"#, expecting: 422))
    }

    @Test func `What is checked and compiled for an admin keeps nobody else waiting`() throws {
        let conditions = (0..<6_000).map { Self.condition("c\($0)") }.joined(separator: ",")
        for (method, target, body, status) in [
            ("PUT", "/v1/datafile", Self.datafile(conditions: 6_000), 200),
            ("PUT", "/v1/experiments/e", #"{"audience":["or",\#(conditions)]}"#, 200),
            ("PUT", "/v1/experiments/e", #"{"audience":["or",{}]}"#, 422),
            ("PUT", "/v1/experiments/f", #"{"variations":["a"]}"#, 201),
            ("DELETE", "/v1/experiments/f", "", 204),
            ("PUT", "/v1/segments/s", #"{"conditions":["or",\#(conditions)]}"#, 422),
        ] {
            let measured = try measure(method, target, body, expecting: status)
            #expect(measured.stall < measured.total / 2 + .milliseconds(100), "\(method) \(target): \(measured)")
        }
    }

    /// One of some attempts must show it: what the machine does besides only makes others wait longer.
    private func expectSteps(
        of attempt: (Int) throws -> (total: Duration, stall: Duration),
        sourceLocation: SourceLocation = #_sourceLocation
    ) rethrows {
        var found: [(total: Duration, stall: Duration)] = []
        for number in 0..<5 {
            found.append(try attempt(number))
            if found[number].stall < found[number].total / 2 { return }
        }
        Issue.record("\(found)", sourceLocation: sourceLocation)
    }

    @Test func `An array of many requests is answered in steps, between which others are`() throws {
        try putDatafile(conditions: 2_000)
        try expectSteps { attempt in
            let requests = (0..<300).map { #"{"user_id":"u\#(attempt)-\#($0)","experiment":"e"}"# }
            return try measure("POST", "/v1/assign", "[\(requests.joined(separator: ","))]", expecting: 200)
        }
        let operations = (0..<300).map {
            #"{"method":"POST","url":"/v1/activate?experimentKey=e","operationID":"\#($0)","body":{"userId":"u"},"#
                + #""headers":{"X-Optimizely-SDK-Key":"default","Content-Type":"application/json"}}"#
        }
        let batch = #"{"operations":[\#(operations.joined(separator: ","))]}"#
        try expectSteps { _ in try measure("POST", "/v1/batch", batch, expecting: 200) }
    }
}
