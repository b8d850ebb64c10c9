import Bucketing
import Chronology
import Dispatch
import Storage
import Testing

extension StoreContract {
    static let saving = [
        StoreContract("A profile that was never saved is nil") { context in
            let profile = try context.reader.profile(of: "nobody")
            #expect(profile == nil)
        },
        StoreContract("A merge keeps the experiments it does not name") { context in
            let first = try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            let second = try await context.store.apply(
                .save(["e2": "c", "e3": "d"], onConflict: .replace), to: "user")
            #expect(!first.existed && second.existed && second.changed)
            #expect(second.profile?.variations == ["e1": "a", "e2": "c", "e3": "d"])
            #expect(try context.reader.variations(of: "user") == ["e1": "a", "e2": "c", "e3": "d"])
        },
        StoreContract("Merges of different experiments submitted at once are all kept") { context in
            let expected = Dictionary(
                uniqueKeysWithValues: (0..<200).map { (Identifier("e\($0)"), Identifier("v\($0)")) })
            let changes = expected.map { experimentID, variationID in
                ProfileChange(userID: "user", operation: .save([experimentID: variationID], onConflict: .replace))
            }
            for result in await context.store.applyTogether(changes) {
                _ = try result.get()
            }
            #expect(try context.reader.variations(of: "user") == expected)
        },
        StoreContract("A merge that keeps stores only what is missing") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let kept = try await context.store.apply(.save(["e1": "b", "e2": "c"], onConflict: .keep), to: "user")
            #expect(kept.profile?.variations == ["e1": "a", "e2": "c"])
        },
        StoreContract("A replacement removes the experiments it does not name") { context in
            try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            let replaced = try await context.store.apply(.replace(["e2": "b", "e3": "c"]), to: "user")
            #expect(replaced.profile?.variations == ["e2": "b", "e3": "c"])
            #expect(try context.reader.variations(of: "user") == ["e2": "b", "e3": "c"])
        },
        StoreContract("A profile replaced by an empty map exists and is empty") { context in
            try await context.store.apply(.replace(["e1": "a"]), to: "user")
            try await context.store.apply(.replace([:]), to: "user")
            #expect(try context.reader.profile(of: "user") == .empty)
            let again = try await context.store.apply(.replace([:]), to: "user")
            #expect(again.existed && !again.changed)
        },
        StoreContract("Saving what is stored already changes nothing") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let before = try context.reader.profile(of: "user")
            context.clock.advance(by: .seconds(5))
            let again = try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            #expect(again.existed && !again.changed)
            #expect(again.profile == before)
            #expect(try context.reader.profile(of: "user") == before)
        },
        StoreContract("Each assignment has the times at which it was made and saved") { context in
            let start = context.clock.now
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(5))
            let result = try await context.store.apply(
                .save(["e1": "b", "e2": "c"], onConflict: .replace), to: "user")
            let assignment = result.profile?["e1"]
            #expect(assignment?.source == .saved)
            #expect(assignment?.assignedAt == start + 5_000)
            #expect(assignment?.updatedAt == start + 5_000)
            #expect(assignment?.expiresAt == nil)
        },
    ]
}

extension StoreContract {
    static let waiting = [
        StoreContract("Changes that wait are bounded in bytes", waitingBytes: 256 << 10) { context in
            let session = try BackgroundSession(context.store, label: "waiting")
            defer { session.close() }
            let map = ExperimentBucketMap(
                (0..<64).map { number in
                    .init(
                        experimentID: Identifier("e\(number)"),
                        variationID: Identifier(String(repeating: "v", count: 255)))
                })
            // The first one keeps its transaction open until all are submitted.
            let areSubmitted = DispatchSemaphore(value: 0)
            let first = ProfileChange(userID: "first", operation: .replace(map)) { _ in
                areSubmitted.wait()
                areSubmitted.signal()
                return true
            }
            let (results, continuation) = AsyncStream<StorageError?>.makeStream()
            session.run { session in
                session.beginBatch()
                for number in 0..<200 {
                    let change = ProfileChange(userID: Identifier("u\(number)"), operation: .replace(map))
                    session.submit(number == 0 ? first : change) { result in
                        if case .failure(let error) = result {
                            continuation.yield(error)
                        } else {
                            continuation.yield(nil)
                        }
                    }
                }
                areSubmitted.signal()
                session.endBatch()
            }
            var (stored, refused) = (0, 0)
            for await failure in results {
                if failure == nil { stored += 1 } else { refused += 1 }
                #expect(failure == nil || failure == .overloaded)
                if stored + refused == 200 { break }
            }
            // One has 20 KiB or more, and a queue may have been taken once before it was full again.
            #expect((1...30).contains(stored))
            let metrics = context.store.metrics()
            #expect(metrics.refusedChanges == UInt64(refused))
            #expect((metrics.waitingChanges, metrics.waitingBytes) == (0, 0))
            try await context.store.apply(.replace(map), to: "later")
        }
    ]
}
