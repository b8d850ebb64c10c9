import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    public static let feed = feedOfKinds + feedOfErased + [generations] + (1...6).map { follow(seed: $0) }

    private static func goal(_ userID: Identifier, id: Identifier? = nil) -> UserEvent {
        .goal(GoalEvent(userID: userID, goal: "g", value: 1, happenedAt: 2_000, receivedAt: 2_000, senderID: id))
    }

    private static let feedOfKinds = [
        StoreContract("The feed has each change of a profile, and nothing where nothing changed") { context in
            let store = context.store
            for _ in 1...2 { try await store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "u") }
            try await store.apply(.save(["e2": "c"], onConflict: .replace), to: "u")
            try await store.apply(.save(["e2": "d"], onConflict: .keep), to: "u")
            try await store.apply(.override(experimentID: "e1", variationID: "x", reason: "demo"), to: "u")
            try await store.apply(.replace(["e2": "c"]), to: "u")
            try await store.apply(.remove(experimentID: "e1"), to: "u")
            try await store.apply(.replace([:]), to: "empty")
            #expect(
                try store.feed() == [
                    "u e1 a saved", "u e2 b saved", "u e2 c saved", "u e1 x override because demo",
                    "u e1 x override because demo", "u e1 removed", "empty has a profile",
                ])
            var model = FeedModel()
            try model.follow(store)
            try model.expect(equals: store)
        },
        StoreContract("The feed has each assignment of a large profile that was changed, added or removed") { context in
            func map(_ numbers: some Sequence<Int>, _ variation: String) -> ExperimentBucketMap {
                let padding = String(repeating: "v", count: 100)
                return ExperimentBucketMap(
                    numbers.map {
                        .init(experimentID: Identifier("e\($0)"), variationID: Identifier(variation + padding))
                    })
            }
            for map in [
                map(0..<300, "a"), map(stride(from: 0, to: 300, by: 2), "a"), map(100..<500, "b"), map(90..<110, "b"),
            ] {
                try await context.store.apply(.replace(map), to: "u")
                var model = FeedModel()
                try model.follow(context.store)
                try model.expect(equals: context.store)
            }
        },
        StoreContract("The feed has decisions, exposures, goals and the numbers of attributes") { context in
            let store = context.store
            try await store.apply(.assign([.init(experimentID: "e", variationID: "a")]), to: "u")
            _ = try await store.record([exposure("u"), exposure("u"), goal("u", id: "1"), goal("u", id: "1")])
            try await store.define(AttributeDefinition(name: "age", number: 0, type: .number))
            try await store.update([1: .set(.number(5))], of: "u")
            try await store.update([1: .set(.number(5))], of: "u")
            try await store.update([1: .remove], of: "u")
            #expect(
                try store.feed() == [
                    "u e a bucketed", "u saw e", "u reached g", "u attributes [1]", "u attributes [1]",
                ])
        },
        StoreContract("Changes of one transaction keep their order for each user, and pages have all of them once") {
            context in
            let users = (0..<40).map { Identifier("u\($0)") }
            let changes = (0..<5).flatMap { round in
                users.map {
                    ProfileChange(
                        userID: $0, operation: .save(["e": Identifier("v\(round)")], onConflict: .replace))
                }
            }
            for result in await context.store.applyTogether(changes) { _ = try result.get() }
            for result in await context.store.applyAsOne(changes.shuffled()) { _ = try result.get() }
            for rows in [1, 3, 1_000] {
                var model = FeedModel()
                try model.follow(context.store, pageRows: rows)
                try model.expect(equals: context.store)
            }
        },
    ]

    private static let feedOfErased = [
        StoreContract("What the feed has of an erased user is not delivered any more, what comes later is") { context in
            let store = context.store
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "u")
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "other")
            _ = try await store.record([exposure("u"), goal("u")])
            try await store.apply(.erase, to: "u")
            try await store.apply(.save(["e": "b"], onConflict: .replace), to: "u")
            #expect(
                try store.feed() == ["-", "other e a saved", "-", "-", "u erased", "u e b saved"])
            try await store.apply(.eraseKeepingTotals, to: "u")
            #expect(try store.feed() == ["-", "other e a saved", "-", "-", "u erased", "-", "u erased"])
            // Whoever has followed from the beginning forgets, too.
            try await store.apply(.erase, to: "nobody")
            #expect(try store.feed().last == "nobody erased")
        },
        StoreContract("An erasure takes back what the account has taken over, and nothing of an id that is used again")
        {
            context in
            let store = context.store
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "anonymous")
            _ = try await store.record([goal("anonymous")])
            try await store.merge("anonymous", into: "first")
            try await store.merge("first", into: "account")
            try await store.apply(.save(["e": "b"], onConflict: .replace), to: "anonymous")
            let taken = ["first e a merged", "first takes over anonymous"]
            let account = ["account e a merged", "account takes over first"]
            #expect(
                try store.feed() == ["anonymous e a saved", "anonymous reached g"] + taken + account + [
                    "anonymous e b saved"
                ])
            try await store.apply(.erase, to: "account")
            #expect(
                try store.feed() == [
                    "-", "-", "-", "first takes over anonymous", "-", "account takes over first",
                    "anonymous e b saved", "account erased",
                ])
        },
        StoreContract("In one transaction only what precedes the erasure is taken back") { context in
            func save(_ variation: Identifier) -> ProfileChange {
                ProfileChange(userID: "u", operation: .save(["e": variation], onConflict: .replace))
            }
            let changes = [save("a"), ProfileChange(userID: "u", operation: .erase), save("b")]
            for result in await context.store.applyAsOne(changes) { _ = try result.get() }
            #expect(try context.store.feed().filter { $0 != "-" } == ["u erased", "u e b saved"])
        },
    ]

    private static let generations = StoreContract(
        "A store that has gone back in time gets another generation, once, and what others presented is known then"
    ) { context in
        let store = context.store
        func state() throws -> ProjectState {
            try #require(try store.read(.projects(ifChangedSince: -1, datafilesAfter: .max)))
        }
        let edge = Author(name: "edge")
        try await store.apply(.save(["e": "a"], onConflict: .replace), to: "u")
        let first = try state().generation
        let cursor = try store.read(.feed(from: 1, limit: 10)).next
        let presented: Int64 = 0x7fff_1234
        for _ in 1...2 {
            // The second one comes from a process that has not seen the first.
            try await store.write(.renewGeneration(first, presented: presented, by: edge))
        }
        let second = try state()
        #expect(second.generation.storeID == first.storeID && second.generation.epoch != first.epoch)
        #expect(second.formerEpochs == [first.epoch, presented])
        // What users have stays; of the feed only what comes now is delivered, and no cursor of before is taken.
        #expect(try context.reader.profile(of: "u")?.variationID(for: "e") == "a")
        #expect(try !store.read(.feed(from: 1, limit: 10)).has(cursor))
        try await store.apply(.save(["e": "b"], onConflict: .replace), to: "u")
        let page = try store.read(.feed(from: cursor.number, limit: 10))
        #expect(page.epoch == second.generation.epoch)
        #expect(try page.rows.flatMap { try $0.lines() }.map { $0?.summary } == ["u e b saved"])
        try await store.write(.renewGeneration(second.generation, presented: 0, by: edge))
        #expect(try state().formerEpochs == [first.epoch, presented, second.generation.epoch])
        #expect(try await store.audit().contains { $0.action == "generation.renew" && $0.author.name == "edge" })
    }

    private static func follow(seed: UInt64) -> StoreContract {
        StoreContract("Who follows the feed of a random history has what the store has (seed \(seed))") { context in
            let store = context.store
            var random = SeededGenerator(seed: 3_000 + seed)
            var follower = FeedModel()
            for step in 0..<120 {
                let users = EventLedger.users.shuffled(using: &random)
                let experiment = EventLedger.experiments.randomElement(using: &random) ?? "e"
                let variation: Identifier = Bool.random(using: &random) ? "a" : "b"
                context.clock.advance(by: .seconds(1))
                switch Int.random(in: 0..<24, using: &random) {
                case 0: try await store.apply(.erase, to: users[0])
                case 1: try await store.apply(.eraseKeepingTotals, to: users[0])
                case 2...3:
                    try await store.apply(
                        .override(experimentID: experiment, variationID: variation, reason: "r"), to: users[0])
                case 4...5: try await store.apply(.remove(experimentID: experiment), to: users[0])
                case 6: try await store.apply(.replace([experiment: variation]), to: users[0])
                case 7...9:
                    try await store.merge(users[1], into: users[0], Bool.random(using: &random) ? .keep : .replace)
                case 10...14:
                    let events = (0..<10).map { _ in EventLedger.randomEvent(&random) }
                    _ = try await store.record(events)
                default:
                    let changes = users.prefix(4).map {
                        ProfileChange(userID: $0, operation: .save([experiment: variation], onConflict: .replace))
                    }
                    for result in await store.applyTogether(changes) { _ = try result.get() }
                }
                if step.isMultiple(of: 7) { try follower.follow(store) }
            }
            try follower.follow(store)
            try follower.expect(equals: store)
            var late = FeedModel()
            try late.follow(store)
            try late.expect(equals: store)
        }
    }
}
