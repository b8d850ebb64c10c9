import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    static let reading = [
        StoreContract("Every reader sees a change as soon as it is acknowledged") { context in
            let other = try context.store.makeReader()
            defer { other.close() }
            for number in 0..<50 {
                let variationID = Identifier("v\(number)")
                try await context.store.apply(.save(["e": variationID], onConflict: .replace), to: "user")
                #expect(try context.reader.variations(of: "user") == ["e": variationID])
                #expect(try other.variations(of: "user") == ["e": variationID])
            }
        },
        StoreContract("Users are distinguished by the bytes of their ids") { context in
            let userIDs: [Identifier] = ["\u{E9}", "e\u{301}", "E", "e", "é ", "\u{1F600}", "用户", "a/b?c#d%", "\t"]
            for (number, userID) in userIDs.enumerated() {
                try await context.store.apply(.replace(["e": Identifier("v\(number)")]), to: userID)
            }
            for (number, userID) in userIDs.enumerated() {
                #expect(try context.reader.variations(of: userID) == ["e": Identifier("v\(number)")])
            }
            #expect(try context.reader.page(after: nil, limit: 100).map(\.userID) == userIDs.sorted())
        },
        StoreContract("Long ids come back whole") { context in
            let userID = Identifier(String(repeating: "ü", count: 512))
            let experimentID = Identifier(String(repeating: "x", count: 255))
            let variationID = Identifier(String(repeating: "y", count: 255))
            try await context.store.apply(.replace([experimentID: variationID]), to: userID)
            #expect(try context.reader.variations(of: userID) == [experimentID: variationID])
        },
        StoreContract("Pages follow each other in the byte order of the ids") { context in
            let userIDs = (0..<25).map { Identifier("user-\($0)") }.sorted()
            for userID in userIDs.reversed() {
                try await context.store.apply(.replace(["e": "v"]), to: userID)
            }
            var seen: [Identifier] = []
            while true {
                let page = try context.reader.page(after: seen.last, limit: 10)
                guard !page.isEmpty else { break }
                #expect(page.count <= 10)
                seen += page.map(\.userID)
            }
            #expect(seen == userIDs)
        },
        StoreContract("Users are found by the beginning of their ids, in the byte order of the ids") { context in
            for userID: Identifier in ["ann", "Ann", "anna", "an", "annß", "bob", "anm"] {
                try await context.store.apply(.replace(["e": "v", "f": "w"]), to: userID)
            }
            func found(_ prefix: String, after: Identifier? = nil, limit: Int = 10) throws -> [KnownUser] {
                try context.store.read(.knownUsers(prefix: prefix, after: after, limit: limit))
            }
            #expect(try found("ann").map(\.userID) == ["ann", "anna", "annß"])
            #expect(try found("ann", after: "ann", limit: 1) == [KnownUser(userID: "anna", assignments: 2)])
            #expect(try found("annß", limit: 1).map(\.userID) == ["annß"])
            #expect(try found("", limit: 2).map(\.userID) == ["Ann", "an"])
            #expect(try found("c").isEmpty)
        },
        StoreContract("Profiles and assignments are counted") { context in
            try await context.store.apply(.replace(["e1": "a", "e2": "b"]), to: "first")
            try await context.store.apply(.replace(["e1": "a"]), to: "second")
            try await context.store.apply(.remove(experimentID: "e1"), to: "first")
            #expect(context.store.metrics().profiles == 2)
            #expect(context.store.metrics().assignments == 2)
        },
    ]

    static let failing = [
        StoreContract("A profile holds as many assignments as the limit and no more", rules: .atMostThree) { context in
            let full: [Identifier: Identifier] = ["e1": "a", "e2": "b", "e3": "c"]
            try await context.store.apply(.save(ExperimentBucketMap(full), onConflict: .replace), to: "user")
            await #expect(throws: StorageError.tooManyAssignments(limit: 3)) {
                try await context.store.apply(.save(["e4": "d"], onConflict: .replace), to: "user")
            }
            await #expect(throws: StorageError.tooManyAssignments(limit: 3)) {
                try await context.store.apply(.override(experimentID: "e4", variationID: "d"), to: "user")
            }
            #expect(try context.reader.variations(of: "user") == full)
        },
        StoreContract("A refused change does not harm those submitted with it", rules: .atMostThree) { context in
            let tooMany: ExperimentBucketMap = ["e0": "v", "e1": "v", "e2": "v", "e3": "v"]
            let changes = (0..<20).map { number in
                ProfileChange(
                    userID: Identifier("user\(number)"), operation: .replace(number == 10 ? tooMany : ["e": "v"])
                )
            }
            let results = await context.store.applyTogether(changes)
            for (number, result) in results.enumerated() {
                #expect((try? result.get()) == nil ? number == 10 : number != 10)
            }
            let refused = try context.reader.profile(of: "user10")
            let stored = try context.reader.profile(of: "user19")
            #expect(refused == nil && stored != nil)
        },
        StoreContract(
            "A condition is asked of what a reader would see, and a change whose condition fails is not made",
            rules: ProfileRules(assignmentTTL: .seconds(1))
        ) { context in
            func change(_ operation: ProfileChange.Operation, if condition: @escaping ProfileChange.Condition) async
                -> Bool
            {
                let change = ProfileChange(userID: "user", operation: operation, condition: condition)
                return await context.store.applyTogether([change]).map { result in
                    if case .failure(let error) = result { #expect(error == .conditionFailed) }
                    return (try? result.get()) != nil
                } == [true]
            }
            let isA: ProfileChange.Condition = { $0?.variationID(for: "e") == "a" }
            #expect(await !change(.replace(["e": "b"]), if: isA))
            #expect(await change(.replace(["e": "a"]), if: { $0 == nil }))
            #expect(await change(.save(["e": "b"], onConflict: .replace), if: isA))
            for operation in [
                .save(["e": "c"], onConflict: .replace), .override(experimentID: "e", variationID: "c"),
                .remove(experimentID: "e"), .erase,
            ] as [ProfileChange.Operation] {
                #expect(await !change(operation, if: isA))
            }
            let stored = try context.reader.variations(of: "user")
            #expect(stored == ["e": "b"])
            context.clock.advance(by: .seconds(2))
            #expect(await change(.replace(["e": "a"]), if: { $0 == nil }))
        },
        StoreContract(
            "Changes submitted as one are made in their order, each with a result of its own", rules: .atMostThree
        ) {
            context in
            let tooMany: ExperimentBucketMap = ["e0": "v", "e1": "v", "e2": "v", "e3": "v"]
            let results = await context.store.applyAsOne([
                ProfileChange(userID: "ada", operation: .replace(["e": "first"])),
                ProfileChange(userID: "ben", operation: .replace(tooMany)),
                ProfileChange(userID: "ada", operation: .save(["e": "second"], onConflict: .replace)),
                ProfileChange(userID: "ada", operation: .save(["e": "third"], onConflict: .keep)),
            ])
            #expect(results.map { try? $0.get().existed } == [false, nil, true, true])
            #expect(results.map { try? $0.get().changed } == [true, nil, true, false])
            let stored = try context.reader.variations(of: "ada")
            #expect(stored == ["e": "second"])
            let refused = try context.reader.profile(of: "ben")
            #expect(refused == nil)
            #expect(context.store.metrics().failedChanges == 1)
        },
        StoreContract("A probe succeeds") { context in
            try await context.store.probe()
        },
        StoreContract("A closed store refuses everything") { context in
            try await context.store.apply(.replace([:]), to: "user")
            context.store.close()
            await #expect(throws: StorageError.closed) { try await context.store.apply(.erase, to: "user") }
            await #expect(throws: StorageError.closed) { try await context.store.probe() }
            #expect(throws: StorageError.closed) { try context.reader.profile(of: "user") }
            #expect(throws: StorageError.closed) { _ = try context.store.makeReader() }
        },
    ]
}

extension ProfileRules {
    fileprivate static var atMostThree: ProfileRules { ProfileRules(assignmentLimit: 3) }
}
