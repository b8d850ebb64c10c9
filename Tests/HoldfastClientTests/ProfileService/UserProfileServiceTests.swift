import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

@Suite struct UserProfileServiceTests {
    private func profile(_ userID: String, _ map: [String: String]) -> UserProfile {
        UserProfile(userID: userID, experimentBucketMap: map)
    }

    /// A server that knows one user.
    private static func server() -> StubServer {
        StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/profiles/lookup" else { return Client.usual(call) }
            let ids =
                (try? JSONDecoder().decode([String: [String]].self, from: Data(call.body.utf8)))?["user_ids"] ?? []
            let profiles = ids.map { id in
                id == "ada" ? #"{"user_id":"ada","experiment_bucket_map":{"1":{"variation_id":"a"}}}"# : "null"
            }
            return .json(#"{"profiles":[\#(profiles.joined(separator: ","))]}"#)
        }
    }

    @Test func `A user who was loaded is known, and one of whom nothing is stored is not`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client)
        try await service.load(userIDs: ["ada", "bob"])
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(service.lookup(userID: "bob") == nil)
        #expect(test.server.calls("/v1/profiles/lookup").count == 1)
    }

    @Test func `An unknown user is loaded in the background`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client)
        #expect(service.lookup(userID: "ada") == nil)
        // What was loaded is written after half a minute.
        await test.clock.untilSleeping(for: .seconds(30))
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(test.server.calls("/v1/profiles/lookup").count == 1)
    }

    @Test func `Why users cannot be loaded in the background is logged`() async throws {
        let (messages, continuation) = AsyncStream.makeStream(of: String.self)
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in .problem(403, "the scope write is required") }
        ) { $0.logger = { level, message, metadata in continuation.yield("\(level) \(message) \(metadata)") } }
        let service = UserProfileService(client: test.client)
        #expect(service.lookup(userID: "ada") == nil)
        for await message in messages where message.hasPrefix("warning profiles could not be loaded") {
            #expect(message.contains("the scope write is required"))
            break
        }
        test.client.destroy()
    }

    @Test func `Users are preloaded, and loaded again when the profile is old`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client, preloading: ["ada"])
        await test.clock.untilSleeping(for: .seconds(30))
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(test.server.calls("/v1/profiles/lookup").count == 1)
        test.clock.advance(by: .seconds(601))
        #expect(service.lookup(userID: "ada") != nil)
        await test.server.untilCalled("/v1/profiles/lookup", count: 2)
    }

    @Test(arguments: [UserProfileService.Mode.lookupAndSave, .trackingOnly])
    func `What one service of a client has saved is what another has, and is saved again after a change`(
        mode: UserProfileService.Mode
    ) throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) })
        let first = UserProfileService(client: test.client)
        let second = UserProfileService(client: test.client, mode: mode)
        first.save(userProfile: profile("ada", ["1": "a"]))
        second.save(userProfile: profile("ada", ["1": "b"]))
        #expect(first.lookup(userID: "ada") == profile("ada", ["1": "b"]))
        first.save(userProfile: profile("ada", ["1": "a"]))
        #expect(test.client.waitingEvents == 3)
        second.save(userProfile: profile("ada", ["1": "a"]))
        #expect(test.client.waitingEvents == 3)
    }

    @Test func `What several services have cached is there in the next run`() async throws {
        let known = StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/profiles/lookup" else { return Client.usual(call) }
            return .json(#"{"profiles":[{"user_id":"","experiment_bucket_map":{"1":{"variation_id":"a"}}}]}"#)
        }
        let test = try Client(server: known)
        do {
            let services = (0..<2).map { _ in UserProfileService(client: test.client) }
            try await services[0].load(userIDs: ["ada"])
            try await services[1].load(userIDs: ["bob"])
        }
        let next = UserProfileService(client: test.client)
        #expect(next.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(next.lookup(userID: "bob") == profile("bob", ["1": "a"]))
    }

    @Test func `What found no room is saved when it is saved again`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) }) { $0.queueSize = 1 }
        let service = UserProfileService(client: test.client)
        service.save(userProfile: profile("bob", ["1": "a"]))
        service.save(userProfile: profile("ada", ["1": "a"]))
        #expect(service.lookup(userID: "ada") == nil)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        service.save(userProfile: profile("ada", ["1": "a"]))
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(test.client.waitingEvents == 1)
    }

    @Test func `What was saved is known at once and sent once, and what the server has is not sent again`() async throws
    {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client)
        try await service.load(userIDs: ["ada"])
        service.save(userProfile: profile("ada", ["1": "a"]))
        #expect(test.client.waitingEvents == 0)
        service.save(userProfile: profile("ada", ["1": "a", "2": "b"]))
        service.save(userProfile: profile("ada", ["1": "a", "2": "b"]))
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a", "2": "b"]))
        #expect(test.client.waitingEvents == 1)
        try await test.client.flush()
        let calls = test.server.calls("/v1/profiles")
        #expect(calls.map(\.query) == ["on_conflict=keep"])
        #expect(
            try JSONDecoder().decode(UserProfile.self, from: Data(calls[0].body.utf8)) == profile("ada", ["2": "b"]))
    }

    @Test func `Only a variation that was known and is another one now replaces what the server has`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client)
        try await service.load(userIDs: ["ada"])
        service.save(userProfile: profile("ada", ["1": "z", "2": "b"]))
        try await test.client.flush()
        let calls = test.server.calls("/v1/profiles")
        #expect(calls.map(\.query) == ["on_conflict=keep", nil])
        #expect(
            try calls.map { try JSONDecoder().decode(UserProfile.self, from: Data($0.body.utf8)) }
                == [profile("ada", ["2": "b"]), profile("ada", ["1": "z"])])
    }

    @Test func `Saves of many users go in one request, and a line that is refused keeps no other`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                guard call.path == "/v1/profiles" else { return Client.usual(call) }
                return .json(#"{"imported":2,"refused":1,"errors":[{"line":2,"detail":"too many","pointer":"/a"}]}"#)
            })
        let service = UserProfileService(client: test.client)
        var notices = test.client.deliveries().makeAsyncIterator()
        for user in ["u1", "u2", "u3"] { service.save(userProfile: profile(user, ["1": "a"])) }
        try await test.client.flush()
        #expect(test.server.calls("/v1/profiles").map(\.lines.count) == [3])
        var told: [String] = []
        for _ in 0..<3 {
            guard let notice = await notices.next(), case .save(let saved, _) = notice.event else { continue }
            if case .refused(let reason) = notice.outcome { told.append("\(saved.userID): \(reason)") }
        }
        #expect(told == ["u2: too many (/a)"])
    }

    @Test func `A save that is not with the server yet goes before what the server says, and survives a restart`()
        async throws
    {
        let directory = try TemporaryDirectory()
        let server = Self.server()
        let first = try Client(directory: directory, server: server)
        UserProfileService(client: first.client).save(userProfile: profile("ada", ["1": "mine", "2": "b"]))
        first.client.destroy()
        let second = try Client(directory: directory, server: server)
        let service = UserProfileService(client: second.client)
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "mine", "2": "b"]))
        try await service.load(userIDs: ["ada"])
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "mine", "2": "b"]))
        try await second.client.flush()
        // The server kept its own variation of the first; the client loads it.
        try await service.load(userIDs: ["ada"])
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
    }

    /// A server whose responses to lookups are late and have the state of the request, and that stores saves.
    private static func lateServer(_ gate: Gate) -> StubServer {
        let stored = Mutex<String?>(nil)
        return StubServer { call throws(HoldfastError) in
            switch call.path {
            case "/v1/profiles/lookup":
                let profile = stored.withLock { $0 } ?? "null"
                await gate.passed()
                let ids =
                    (try? JSONDecoder().decode([String: [String]].self, from: Data(call.body.utf8)))?["user_ids"] ?? []
                return .json(#"{"profiles":[\#(ids.map { $0 == "ada" ? profile : "null" }.joined(separator: ","))]}"#)
            case "/v1/profiles":
                stored.withLock { $0 = call.lines.last.map(String.init) }
                return Client.usual(call)
            default:
                return Client.usual(call)
            }
        }
    }

    @Test(.timeLimit(.minutes(5))) func `A load that began before a save was settled does not hide it`() async throws {
        let gate = Gate()
        let test = try Client(server: Self.lateServer(gate))
        let service = UserProfileService(client: test.client)
        #expect(service.lookup(userID: "ada") == nil)
        await test.server.untilCalled("/v1/profiles/lookup")
        service.save(userProfile: profile("ada", ["1": "a"]))
        try await test.client.flush()
        gate.open()
        // The user is loaded again, and known throughout.
        await test.server.untilCalled("/v1/profiles/lookup", count: 2)
        for _ in 0..<1_000 {
            #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
            await Task.yield()
        }
    }

    @Test(.timeLimit(.minutes(5))) func `A user who is loaded while a save is settled is known with the save`()
        async throws
    {
        let gate = Gate()
        let test = try Client(server: Self.lateServer(gate))
        let service = UserProfileService(client: test.client)
        let loading = Task { try await service.load(userIDs: ["ada", "bob"]) }
        await test.server.untilCalled("/v1/profiles/lookup")
        service.save(userProfile: profile("ada", ["1": "a"]))
        try await test.client.flush()
        gate.open()
        try await loading.value
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
        #expect(service.lookup(userID: "bob") == nil)
    }

    @Test func `What was loaded is known to the next client without a server`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory, server: Self.server())
        try await UserProfileService(client: first.client).load(userIDs: ["ada", "bob"])
        let kept = UserProfileService(client: first.client)
        try await kept.load(userIDs: ["ada"])
        first.client.destroy()
        let second = try Client(directory: directory, server: StubServer { _ throws(HoldfastError) in .status(500) })
        #expect(UserProfileService(client: second.client).lookup(userID: "ada") == profile("ada", ["1": "a"]))
    }

    @Test func `Tracking only saves and never looks up`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client, mode: .trackingOnly, preloading: ["ada"])
        service.save(userProfile: profile("ada", ["1": "z"]))
        #expect(service.lookup(userID: "ada") == nil)
        try await service.load(userIDs: ["ada"])
        try await test.client.flush()
        #expect(test.server.calls("/v1/profiles").map(\.query) == [nil])
        #expect(test.server.calls("/v1/profiles/lookup").isEmpty)
    }

    @Test(arguments: [
        UserProfile(userID: ""), UserProfile(userID: String(repeating: "x", count: 1_025)), UserProfile(userID: "a\0b"),
        UserProfile(userID: "ada", experimentBucketMap: ["a b": "1"]),
        UserProfile(userID: "ada", experimentBucketMap: ["1": ""]),
    ])
    func `An invalid profile is dropped and reported`(_ profile: UserProfile) async throws {
        let test = try Client(server: Self.server())
        var notices = test.client.deliveries().makeAsyncIterator()
        UserProfileService(client: test.client).save(userProfile: profile)
        guard case .dropped = await notices.next()?.outcome else {
            Issue.record("not told")
            return
        }
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `A preloaded profile is used at once, and where the server has no assignment`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(
            client: test.client, preloaded: [profile("ada", ["1": "b", "2": "c"]), profile("bob", ["1": "b"])])
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "b", "2": "c"]))
        #expect(test.client.waitingEvents == 0)
        try await service.load(userIDs: ["ada", "bob"])
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a", "2": "c"]))
        #expect(service.lookup(userID: "bob") == profile("bob", ["1": "b"]))
    }

    @Test func `An override precedes what is stored, and is not saved`() async throws {
        let test = try Client(server: Self.server())
        let service = UserProfileService(client: test.client)
        try await service.load(userIDs: ["ada", "bob"])
        service.override(["1": "z", "2": "y"], userID: "ada")
        service.override(["1": "z"], userID: "bob")
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "z", "2": "y"]))
        #expect(service.lookup(userID: "bob") == profile("bob", ["1": "z"]))
        service.save(userProfile: profile("ada", ["1": "z", "2": "y", "3": "new"]))
        try await test.client.flush()
        #expect(
            test.server.calls("/v1/profiles").map(\.body) == [
                #"{"user_id":"ada","experiment_bucket_map":{"3":{"variation_id":"new"}}}"# + "\n"
            ]
                || test.server.calls("/v1/profiles").map(\.body) == [
                    #"{"experiment_bucket_map":{"3":{"variation_id":"new"}},"user_id":"ada"}"# + "\n"
                ])
        service.override(nil, userID: "ada")
        #expect(service.lookup(userID: "ada")?.experimentBucketMap["1"] == "a")
    }
}

@Suite struct DeviceUserProfileServiceTests {
    private func profile(_ userID: String, _ map: [String: String]) -> UserProfile {
        UserProfile(userID: userID, experimentBucketMap: map)
    }

    @Test func `Profiles survive a restart, and saves merge`() throws {
        let directory = try TemporaryDirectory()
        let file = directory.url.appending(path: "profiles/all.json")
        let first = try DeviceUserProfileService(file: file, preloaded: [profile("bob", ["1": "p", "2": "p"])])
        #expect(first.lookup(userID: "ada") == nil)
        first.save(userProfile: profile("ada", ["1": "a"]))
        first.save(userProfile: profile("ada", ["2": "b"]))
        first.save(userProfile: profile("bob", ["1": "q"]))
        first.save(userProfile: profile("", ["1": "q"]))
        let second = try DeviceUserProfileService(file: file, preloaded: [profile("bob", ["1": "p", "3": "p"])])
        #expect(second.lookup(userID: "ada") == profile("ada", ["1": "a", "2": "b"]))
        #expect(second.lookup(userID: "bob") == profile("bob", ["1": "q", "2": "p", "3": "p"]))
        second.remove(userID: "ada")
        #expect(try DeviceUserProfileService(file: file).lookup(userID: "ada") == nil)
    }

    @Test func `What cannot be saved is logged`() throws {
        let directory = try TemporaryDirectory()
        let log = Log<String>()
        // A file where a directory must be.
        try Data().write(to: directory.url.appending(path: "profiles"))
        let service = try DeviceUserProfileService(file: directory.url.appending(path: "profiles/all.json")) {
            level, message, metadata in log.add("\(level) \(message) \(metadata["reason"] ?? "")")
        }
        service.save(userProfile: profile("", ["1": "q"]))
        #expect(log.all == ["error profile not saved user id must have 1 to 1024 bytes without NUL; got 0 bytes"])
        service.save(userProfile: profile("ada", ["1": "a"]))
        #expect(log.all.last == "error profiles cannot be written ")
        #expect(service.lookup(userID: "ada") == profile("ada", ["1": "a"]))
    }

    @Test func `A damaged file is an error`() throws {
        let directory = try TemporaryDirectory()
        let file = directory.url.appending(path: "profiles.json")
        try Data("{".utf8).write(to: file)
        #expect(throws: HoldfastError.self) { try DeviceUserProfileService(file: file) }
    }
}
