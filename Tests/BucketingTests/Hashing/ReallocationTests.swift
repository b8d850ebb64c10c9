import Bucketing
import JSON
import TestSupport
import Testing

@Suite struct ReallocationTests {
    typealias Weights = [TrafficAllocation.Weight]

    static func weights(_ pairs: KeyValuePairs<String, Int>) -> Weights {
        pairs.map { TrafficAllocation.Weight(entityID: Identifier($0.key), weight: $0.value) }
    }

    static func ranges(_ allocation: TrafficAllocation) -> String {
        allocation.ranges.map { "\($0.entityID)<\($0.end)" }.joined(separator: " ")
    }

    @Test(arguments: [
        (weights(["a": 5_000, "b": 5_000]), "a<5000 b<10000"),
        (weights(["a": 1_000, "b": 1_000]), "a<1000 b<2000"),
        (weights(["a": 0, "b": 3]), "b<3"),
        (weights([:]), ""),
    ])
    func `New allocations follow the order of the weights`(weights: Weights, expected: String) {
        #expect(Self.ranges(TrafficAllocation(weights: weights)) == expected)
    }

    @Test(arguments: [
        // A boundary moves.
        (weights(["a": 5_000, "b": 5_000]), weights(["a": 7_000, "b": 3_000]), "a<7000 b<10000"),
        (weights(["a": 5_000, "b": 5_000]), weights(["a": 2_000, "b": 8_000]), "a<2000 b<10000"),
        // Traffic grows into unowned bucket values, and shrinks from the end.
        (weights(["a": 1_000, "b": 1_000]), weights(["a": 1_000, "b": 4_000]), "a<1000 b<5000"),
        (weights(["a": 1_000, "b": 1_000]), weights(["a": 500, "b": 1_000]), "a<500 <1000 b<2000"),
        // A new variation takes from all others.
        (
            weights(["a": 5_000, "b": 5_000]), weights(["a": 4_000, "b": 4_000, "c": 2_000]),
            "c<1000 a<5000 c<6000 b<10000"
        ),
        // A removed variation leaves its range to its neighbour.
        (weights(["a": 3_000, "b": 3_000, "c": 4_000]), weights(["a": 3_000, "c": 7_000]), "a<3000 c<10000"),
    ])
    func `Ranges grow and shrink in place`(former: Weights, new: Weights, expected: String) {
        #expect(Self.ranges(TrafficAllocation(weights: former).reallocated(to: new)) == expected)
    }

    @Test func `Unowned bucket values between ranges stay a range of nobody`() throws {
        let allocation = try TrafficAllocation(
            json: [
                ["entityId": "a", "endOfRange": 10], ["entityId": "", "endOfRange": 20],
                ["entityId": "b", "endOfRange": 30],
            ])
        #expect(Self.ranges(allocation.reallocated(to: Self.weights(["a": 10, "b": 10]))) == "a<10 <20 b<30")
        #expect(Self.ranges(allocation.reallocated(to: Self.weights(["b": 10, "c": 10]))) == "c<10 <20 b<30")
    }

    @Test func `As few bucket values as possible change their owner`() {
        var random = SeededGenerator(seed: 7)
        let ids: [Identifier] = ["a", "b", "c", "d"]
        var allocation = TrafficAllocation(ranges: [])
        for _ in 0..<20 {
            var rest = 10_000
            let weights = ids.map { id in
                let weight = Int.random(in: 0...rest, using: &random)
                rest -= weight
                return TrafficAllocation.Weight(entityID: id, weight: weight)
            }
            let changed = allocation.reallocated(to: weights)
            var sizes: [Identifier: Int] = [:]
            var moved = 0
            for value in 0..<10_000 {
                let (old, new) = (allocation.entity(at: value), changed.entity(at: value))
                if let new { sizes[new, default: 0] += 1 }
                if old != new { moved += 1 }
            }
            #expect(weights.allSatisfy { sizes[$0.entityID, default: 0] == $0.weight })
            #expect(moved == Self.leastMoves(from: allocation, to: weights))
            allocation = changed
        }
    }

    /// The larger of the sum of all gains and the sum of all losses.
    private static func leastMoves(from allocation: TrafficAllocation, to weights: Weights) -> Int {
        let changes = weights.map { weight in
            weight.weight - (0..<10_000).count { allocation.entity(at: $0) == weight.entityID }
        }
        return max(changes.reduce(0) { $0 + max(0, $1) }, changes.reduce(0) { $0 + max(0, -$1) })
    }

    @Test(
        arguments: [
            ([1, 1, 1], 100, [3_334, 3_333, 3_333]), ([50, 50], 100, [5_000, 5_000]),
            ([5_000, 5_000], 100, [5_000, 5_000]),
            ([3, 1], 10, [750, 250]), ([1, 1, 1], 0.01, [1, 0, 0]), ([0, 7], 100, [0, 10_000]), ([1, 1], 0, [0, 0]),
            ([0, 0], 100, [0, 0]), ([0.3, 0.7], 33.33, [1_000, 2_333]), ([], 100, []),
        ] as [([Double], Double, [Int])])
    func `Traffic is split by a ratio`(ratio: [Double], traffic: Double, expected: [Int]) {
        let ids = ratio.indices.map { Identifier("v\($0)") }
        #expect(TrafficAllocation.weights(of: ids, ratio: ratio, traffic: traffic).map(\.weight) == expected)
    }

    @Test func `The parts of split traffic add up`() {
        var random = SeededGenerator(seed: 4)
        for _ in 0..<2_000 {
            let ratio = (0..<Int.random(in: 1...40, using: &random)).map { _ in
                Bool.random(using: &random) ? 0 : Double.random(in: 0...1_000_000, using: &random)
            }
            let traffic = Double.random(in: 0...100, using: &random)
            let ids = ratio.indices.map { Identifier("v\($0)") }
            let counts = TrafficAllocation.weights(of: ids, ratio: ratio, traffic: traffic).map(\.weight)
            let total = ratio.contains { $0 > 0 } ? Int((traffic * 100).rounded()) : 0
            #expect(counts.reduce(0, +) == total)
            #expect(zip(ratio, counts).allSatisfy { $0 > 0 || $1 == 0 })
        }
    }

    @Test func `An allocation is read back from JSON`() throws {
        let allocation = TrafficAllocation(weights: Self.weights(["a": 10, "b": 20]))
        #expect(try TrafficAllocation(json: allocation.json) == allocation)
        let error = try #require(throws: DatafileError.self) {
            try TrafficAllocation(json: [["entityId": 5, "endOfRange": 1]])
        }
        #expect(error.description == "`entityId` must be a string; got a number, at /trafficAllocation/0/entityId")
    }
}
