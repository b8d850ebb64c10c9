import Foundation
import Synchronization
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
        try service.update(attributes: ["country": "de", "age": 30])
        try service.update(attributes: ["country": "de", "age": 31])
        try service.update(attributes: ["country": "de"])
        try service.delete(attributes: ["age", "age2"])
        try service.delete(attributes: ["age"])
        try service.update(attributes: ["member": true, "tags": ["a", "b"], "score": 0.5], userID: "bob")
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
        try service.update(attributes: ["country": "de"], userID: "ada")
        try await first.client.flush()
        first.client.destroy()
        let second = try Client(directory: directory)
        let again = AttributeService(client: second.client)
        try again.update(attributes: ["country": "de"], userID: "ada")
        #expect(second.client.waitingEvents == 0)
        second.clock.advance(by: .seconds(86_401))
        try again.update(attributes: ["country": "de"], userID: "ada")
        #expect(second.client.waitingEvents == 1)
        withExtendedLifetime(service) {}
    }

    @Test func `What one service has changed, another one of the client sends again`() async throws {
        let directory = try TemporaryDirectory()
        let test = try Client(directory: directory)
        let (first, second) = (AttributeService(client: test.client), AttributeService(client: test.client))
        try first.update(attributes: ["age": 30], userID: "ada")
        try second.update(attributes: ["age": 31], userID: "ada")
        try first.update(attributes: ["age": 30], userID: "ada")
        try second.update(attributes: ["age": 30], userID: "ada")
        try second.delete(attributes: ["age"], userID: "ada")
        try first.update(attributes: ["age": 30], userID: "ada")
        #expect(first.attributes(userID: "ada") == ["age": 30] && second.attributes(userID: "ada") == ["age": 30])
        try await test.client.flush()
        #expect(
            try sent(test).map { $0["attributes"]?["age"] ?? $0["remove"] ?? .null } == [30, 31, 30, ["age"], 30])
        test.client.destroy()
        // The record that stays is that of both.
        let later = try Client(directory: directory)
        try AttributeService(client: later.client).update(attributes: ["age": 30], userID: "ada")
        #expect(later.client.waitingEvents == 0)
        later.client.destroy()
    }

    @Test func `A value of an earlier run that is refused before there is a service may be sent again`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory)
        try AttributeService(client: first.client).update(attributes: ["country": "xx"], userID: "ada")
        first.client.destroy()
        let second = try Client(
            directory: directory,
            server: StubServer { _ throws(HoldfastError) in
                .json(#"{"imported":0,"refused":1,"errors":[{"line":1,"detail":"no country"}]}"#)
            })
        try await second.client.flush()
        #expect(second.client.queueMetrics.refused == 1)
        try AttributeService(client: second.client).update(attributes: ["country": "xx"], userID: "ada")
        #expect(second.client.waitingEvents == 1)
        second.client.destroy()
    }

    @Test func `A refused value is reported, and may be sent again`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                .json(
                    #"{"imported":0,"refused":1,"errors":[{"line":1,"detail":"no country","pointer":"/attributes/country"}]}"#
                )
            })
        let service = AttributeService(client: test.client)
        var outcomes = service.outcomes().makeAsyncIterator()
        try service.update(attributes: ["country": "xx"], userID: "ada")
        try await test.client.flush()
        guard case .failure(let reason) = await outcomes.next()?.result else {
            Issue.record("not told")
            return
        }
        #expect(reason == "no country (/attributes/country)")
        try service.update(attributes: ["country": "xx"], userID: "ada")
        #expect(test.client.waitingEvents == 1)
    }

    @Test func `A failure is reported, and changes arrive in order when the server is back`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(503) })
        let service = AttributeService(client: test.client)
        var outcomes = service.outcomes().makeAsyncIterator()
        for age in 1...3 { try service.update(attributes: ["age": .integer(Int64(age))], userID: "ada") }
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        guard case .postponed = await outcomes.next()?.result else {
            Issue.record("not told")
            return
        }
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(try sent(test).suffix(3).map { $0["attributes"]?["age"]?.intValue } == [1, 2, 3])
    }

    @Test func `Without a user, or with a wrong one, a change is an error`() async throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        #expect(throws: HoldfastError.notInitialized) { try service.update(attributes: ["a": 1]) }
        #expect(throws: HoldfastError.notInitialized) { try service.delete(attributes: ["a"]) }
        #expect(throws: HoldfastError.self) { try service.update(attributes: ["a": 1], userID: "") }
        #expect(service.attributes() == [:])
        test.client.destroy()
        #expect(throws: HoldfastError.destroyed) { try service.update(attributes: ["a": 1], userID: "ada") }
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Values of any type are converted, and others are named`() async throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        struct Unknown {}
        let date = Date(timeIntervalSince1970: 0)
        let values: [String: Any] = [
            "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": date, "score": 0.5, "small": Int8(3),
            "list": ["a", "b"], "value": UserAttributeValue.integer(1), "number": NSNumber(value: 2.5),
            "flag": NSNumber(value: true),
        ]
        let wrong: [String: Any] = [
            "huge": UInt64.max, "hugeNumber": NSNumber(value: UInt64.max), "nan": Double.nan, "other": Unknown(),
        ]
        let error = #expect(throws: HoldfastError.self) {
            try service.update(attributes: values.merging(wrong) { $1 }, userID: "ada")
        }
        #expect(error?.localizedDescription.hasSuffix("of other types: huge, hugeNumber, nan, other") == true)
        // All or nothing.
        #expect(test.client.waitingEvents == 0 && service.attributes(userID: "ada").isEmpty)
        try service.update(attributes: values, userID: "ada")
        #expect(
            service.attributes(userID: "ada") == [
                "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": "1970-01-01T00:00:00.000Z",
                "score": 0.5,
                "small": 3, "list": ["a", "b"], "value": 1, "number": 2.5, "flag": true,
            ])
    }

    @Test func `A queue that is full of goals has room for attributes`() async throws {
        let test = try Client { $0.queueSize = 200 }
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        for number in 0..<250 { test.client.track(goalID: "goal\(number)") }
        #expect(test.client.waitingEvents == 200)
        let service = AttributeService(client: test.client)
        for age in 0..<20 { try service.update(attributes: ["age": .integer(Int64(age))]) }
        #expect(test.client.waitingEvents == 220)
        // An update that finds no room is an error, and is not taken for sent.
        #expect(throws: HoldfastError.storage("the queue is full of events that were not sent yet")) {
            try service.update(attributes: ["age": 100])
        }
        #expect(throws: HoldfastError.self) { try service.delete(attributes: ["age"]) }
        #expect(service.attributes() == ["age": 19])
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        try service.update(attributes: ["age": 100])
        try await test.client.flush()
        #expect(try sent(test).last?["attributes"]?["age"] == 100)
        test.client.destroy()
    }

    @Test func `Several values in one string are compared one by one, as the server does`() async throws {
        let test = try Client()
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/attributes" else { return Client.usual(call) }
            return .json(
                #"""
                {"attributes":[{"name":"colors","type":"selection","values":["One","Two","Three"],"multiple":true},
                 {"name":"size","type":"selection","values":["S","M"]}]}
                """#)
        }
        let service = AttributeService(client: test.client)
        #expect(try await service.problems(of: ["colors": "Three; One"]) == [:])
        #expect(try await service.problems(of: ["colors": " Two ;\tOne;"]) == [:])
        #expect(
            try await service.problems(of: ["colors": "Three; Four", "size": "S; M"]) == [
                "colors": "the value must be one of One, Two, Three; got 'Four'",
                "size": "the value must be one of S, M; got 'S; M'",
            ])
    }

    @Test func `What was last written can be read, and is forgotten by a reset`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let service = AttributeService(client: test.client)
        try service.update(attributes: ["hobby": "movies", "age": 40])
        try service.delete(attributes: ["hobby"])
        #expect(service.attributes() == ["age": 40])
        #expect(service.attributes(userID: "bob") == [:])
        try await test.client.flush()
        try service.update(attributes: ["age": 40])
        #expect(test.client.waitingEvents == 0)
        service.reset()
        #expect(service.attributes() == [:])
        try service.update(attributes: ["age": 40])
        #expect(test.client.waitingEvents == 1)
    }

    @Test func `Observers tell updates from deletions and success from failure`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                .json(#"{"imported":2,"refused":1,"errors":[{"line":2,"detail":"no country"}]}"#)
            })
        let service = AttributeService(client: test.client)
        let told = Mutex<[String]>([])
        let token = service.addObserver { outcome in
            let result =
                switch outcome.result {
                case .success: "success"
                case .failure(let reason): "failure: \(reason)"
                case .postponed: "postponed"
                }
            told.withLock { $0.append("\(outcome.operation) \(outcome.userID) \(outcome.names) \(result)") }
        }
        try service.update(attributes: ["age": 40, "hobby": "movies"], userID: "ada")
        try service.update(attributes: ["country": "xx"], userID: "ada")
        try service.delete(attributes: ["age"], userID: "ada")
        try await test.client.flush()
        #expect(
            told.withLock { $0 } == [
                #"update ada ["age", "hobby"] success"#, #"update ada ["country"] failure: no country"#,
                #"delete ada ["age"] success"#,
            ])
        token.cancel()
    }

    @Test func `Flags are fetched again when attributes of the current user were stored`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let service = AttributeService(client: test.client)
        try service.update(attributes: ["age": 40])
        try await test.client.flush()
        await test.server.untilCalled("/v1/evaluations", count: 2)
        try service.update(attributes: ["age": 40], userID: "bob")
        try await test.client.flush()
        #expect(test.server.calls("/v1/evaluations").count == 2)
    }

    @Test func `An observer may read attributes, also when the queue is full`() async throws {
        let test = try Client { $0.queueSize = 1 }
        test.client.track(goalID: "fills the queue", userID: "ada")
        let service = AttributeService(client: test.client)
        let (outcomes, continuation) = AsyncStream.makeStream(of: [String: UserAttributeValue].self)
        service.addObserver { [unowned service] outcome in
            if case .failure = outcome.result { continuation.yield(service.attributes(userID: outcome.userID)) }
        }
        #expect(throws: HoldfastError.self) { try service.update(attributes: ["age": 40], userID: "ada") }
        for await known in outcomes {
            #expect(known.isEmpty)
            break
        }
        #expect(test.client.queueMetrics.droppedQueueFull == 1)
        test.client.destroy()
    }

    @Test func `A token that may not read definitions is not tried again`() async throws {
        let (messages, continuation) = AsyncStream.makeStream(of: String.self)
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path == "/v1/attributes" ? .problem(403, "the scope read is required") : Client.usual(call)
            }
        ) {
            $0.logger = { _, message, _ in continuation.yield(message) }
            $0.checksAttributes = true
        }
        let service = AttributeService(client: test.client)
        try service.update(attributes: ["age": 40], userID: "ada")
        for await message in messages where message == "attributes are not compared with definitions" { break }
        for age in 41..<45 { try service.update(attributes: ["age": .integer(Int64(age))], userID: "ada") }
        try await test.client.flush()
        #expect(test.server.calls("/v1/attributes").count == 1)
        test.client.destroy()
    }

    @Test func `Attributes are compared with the server's definitions`() async throws {
        let definitions = #"""
            {"attributes":[{"name":"country","type":"country"},{"name":"age","type":"number"},{"name":"born","type":"date"},
             {"name":"wakes","type":"time"},{"name":"seen","type":"timestamp"},{"name":"member","type":"boolean"},
             {"name":"plan","type":"selection","values":["free","pro"]},
             {"name":"topics","type":"selection","values":["a","b"],"multiple":true},{"name":"later","type":"new"}]}
            """#
        let (messages, continuation) = AsyncStream.makeStream(of: String.self)
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path == "/v1/attributes" ? .json(definitions) : Client.usual(call)
            }
        ) {
            $0.logger = { level, message, metadata in
                if level == .error { continuation.yield("\(message): \(metadata["name"] ?? "")") }
            }
            $0.checksAttributes = true
        }
        let service = AttributeService(client: test.client)
        let date = Date(timeIntervalSince1970: 1_000_000)
        let utc = try #require(TimeZone(identifier: "UTC"))
        let right: [String: UserAttributeValue] = [
            "country": .country("DE"), "age": 40, "born": .date(date, timeZone: utc),
            "wakes": .time(date, timeZone: utc),
            "seen": .timestamp(date), "member": true, "plan": "pro", "topics": ["a"], "later": 1,
        ]
        #expect(try await service.problems(of: right) == [:])
        #expect(right["born"] == "1970-01-12" && right["wakes"] == "13:46" && right["country"] == "de")
        #expect(UserAttributeValue.time(hour: 7, minute: 5) == "07:05")
        let wrong: [String: UserAttributeValue] = [
            "country": "Germany", "age": "40", "born": "12.1.1970", "wakes": "7:05", "seen": "yesterday", "member": 1,
            "plan": "gold", "topics": ["a", "c"], "unknown": 1,
        ]
        let problems = try await service.problems(of: wrong)
        #expect(problems.keys.sorted() == wrong.keys.sorted())
        #expect(problems["age"] == "the value must be of type number; got a string")
        #expect(test.server.calls("/v1/attributes").count == 1)

        try service.update(attributes: ["unknown": 1], userID: "ada")
        var errors = messages.makeAsyncIterator()
        #expect(await errors.next() == "attribute cannot be stored: unknown")
    }

    @Test func `Of more attributes than are remembered, the last ones are`() throws {
        let test = try Client()
        let service = AttributeService(client: test.client)
        func names(_ numbers: Range<Int>) -> [String: UserAttributeValue] {
            Dictionary(uniqueKeysWithValues: numbers.map { ("attribute\($0)", .integer(Int64($0))) })
        }
        try service.update(attributes: names(0..<600), userID: "ada")
        #expect(service.attributes(userID: "ada") == names(0..<600))
        try service.update(attributes: names(600..<1_200), userID: "ada")
        #expect(service.attributes(userID: "ada") == names(600..<1_200))
    }

    @Test func `Values are equal when their bytes are, and numbers when they are the same`() {
        #expect(UserAttributeValue.string("\u{E9}") != .string("e\u{301}"))
        #expect(UserAttributeValue.integer(1) == .number(1))
        #expect(UserAttributeValue.bool(true) != .integer(1))
        #expect(UserAttributeValue.timestamp(Date(timeIntervalSince1970: 0)) == "1970-01-01T00:00:00.000Z")
    }
}
