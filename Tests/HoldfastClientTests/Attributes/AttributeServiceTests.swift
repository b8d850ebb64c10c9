import Foundation
import Testing

@testable import HoldfastClient

@Suite struct AttributeServiceTests {
    private func sent(_ test: Client) throws -> [HoldfastValue] {
        try test.server.calls("/v1/profiles/attributes").flatMap(\.lines).map {
            try JSONDecoder().decode(HoldfastValue.self, from: Data($0.utf8))
        }
    }

    @Test func `Changes are sent in their order and together, and unchanged values are not`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let service = AttributeService(client: test.client)
        service.update(attributes: ["country": "de", "age": 30])
        service.update(attributes: ["country": "de", "age": 31])
        service.update(attributes: ["country": "de"])
        service.delete(attributes: ["age", "age2"])
        service.delete(attributes: ["age"])
        service.update(attributes: ["member": true, "tags": ["a", "b"], "score": 0.5], userID: "bob")
        try await test.client.flush()
        #expect(test.server.calls("/v1/profiles/attributes").count == 1)
        #expect(
            try sent(test) == [
                ["user_id": "ada", "attributes": ["country": "de", "age": 30]],
                ["user_id": "ada", "attributes": ["age": 31]], ["user_id": "ada", "remove": ["age", "age2"]],
                ["user_id": "bob", "attributes": ["member": true, "tags": ["a", "b"], "score": 0.5]],
            ])
    }

    @Test func `What was sent is not sent again after a restart, but after a day it is`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        let service = AttributeService(client: first.client)
        service.update(attributes: ["country": "de"], userID: "ada")
        try await first.client.flush()
        first.client.destroy()
        let second = try Client(directory: directory)
        let again = AttributeService(client: second.client)
        again.update(attributes: ["country": "de"], userID: "ada")
        #expect(second.client.waitingEvents == 0)
        second.clock.advance(by: .seconds(86_401))
        again.update(attributes: ["country": "de"], userID: "ada")
        #expect(second.client.waitingEvents == 1)
        withExtendedLifetime(service) {}
    }

    @Test func `A value that was refused is told, and may be sent again`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                .json(#"{"imported":0,"refused":1,"errors":[{"line":1,"detail":"no country","pointer":"/attributes/country"}]}"#)
            })
        let service = AttributeService(client: test.client)
        var outcomes = service.outcomes().makeAsyncIterator()
        service.update(attributes: ["country": "xx"], userID: "ada")
        try await test.client.flush()
        guard case .refused(let reason) = await outcomes.next()?.outcome else {
            Issue.record("not told")
            return
        }
        #expect(reason == "no country (/attributes/country)")
        service.update(attributes: ["country": "xx"], userID: "ada")
        #expect(test.client.waitingEvents == 1)
    }

    @Test func `A failure is told, and the changes arrive in their order when the server is back`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(503) })
        let service = AttributeService(client: test.client)
        var outcomes = service.outcomes().makeAsyncIterator()
        for age in 1...3 { service.update(attributes: ["age": .integer(Int64(age))], userID: "ada") }
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        guard case .postponed = await outcomes.next()?.outcome else {
            Issue.record("not told")
            return
        }
        test.server.answer { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(try sent(test).suffix(3).map { $0["attributes"]?["age"]?.intValue } == [1, 2, 3])
    }

    @Test func `Without a user nothing is changed`() async throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        service.update(attributes: ["a": 1])
        service.delete(attributes: ["a"])
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Values are equal when their bytes are, and numbers when they are the same`() {
        #expect(UserAttributeValue.string("\u{E9}") != .string("e\u{301}"))
        #expect(UserAttributeValue.integer(1) == .number(1))
        #expect(UserAttributeValue.bool(true) != .integer(1))
        #expect(UserAttributeValue.timestamp(Date(timeIntervalSince1970: 0)) == "1970-01-01T00:00:00.000Z")
    }
}
