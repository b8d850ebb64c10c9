import TestSupport

/// Random operations, the same with the same seed.
struct OperationGenerator {
    /// Experiments of no datafile, in which any variation may be saved.
    private static let free = ["p1", "p2", "p3"]
    /// Experiments of the datafile that ``DatafileExperiment`` activates.
    private static let known = DatafileExperiment.all

    private let client: Int
    /// Whether some overrides end by themselves. What is told of them depends on the time.
    private let expires: Bool
    private var random: SeededGenerator
    private var count = 0

    init(client: Int, seed: UInt64, expires: Bool) {
        self.client = client
        self.expires = expires
        random = SeededGenerator(seed: seed &* 1_000_003 &+ UInt64(client))
    }

    mutating func chance(_ thousandths: Int) -> Bool {
        Int.random(in: 0..<1_000, using: &random) < thousandths
    }

    mutating func element<Element>(of list: [Element]) -> Element {
        list[Int.random(in: list.indices, using: &random)]
    }

    /// In random order.
    mutating func nonEmptySubset<Element>(of list: [Element]) -> [Element] {
        Array(list.shuffled(using: &random).prefix(Int.random(in: 1...list.count, using: &random)))
    }

    mutating func operation() -> Operation {
        switch Int.random(in: 0..<100, using: &random) {
        case ..<19: .save(map())
        case ..<24: expose()
        case ..<28: evaluate()
        case ..<32: force()
        case ..<38: .keep(map())
        case ..<46: .put(map())
        case ..<54: override()
        case ..<62: .remove(experiment: experiment())
        case ..<65: .erase
        case ..<80: assign()
        case ..<92: .read
        default: .lookup
        }
    }

    /// An operation on a user and this other one.
    mutating func operation(with other: String) -> Operation {
        if chance(500) { return .merge(from: other) }
        let experiment = element(of: Self.known)
        return .assignBeside(other, experiment: experiment.id, among: experiment.variations)
    }

    /// One to three experiments; what is free gets a variation that nobody gives a second time.
    mutating func map() -> [String: String] {
        var map: [String: String] = [:]
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let (experiment, variation) = assignment()
            map[experiment] = variation
        }
        return map
    }

    private mutating func assignment() -> (experiment: String, variation: String) {
        if chance(400) {
            let experiment = element(of: Self.known)
            return (experiment.id, element(of: experiment.variations))
        }
        count += 1
        return (element(of: Self.free), "c\(client)n\(count)")
    }

    private mutating func expose() -> Operation {
        let experiment = element(of: Self.known)
        return .expose(
            experiment: experiment.id, variation: element(of: experiment.variations), among: experiment.variations)
    }

    private mutating func evaluate() -> Operation {
        let experiment = element(of: Self.known)
        return .evaluate(experiment: experiment.id, among: experiment.variations)
    }

    private mutating func override() -> Operation {
        let (experiment, variation) = assignment()
        return .override(
            experiment: experiment, variation: variation, reason: chance(500) ? "reason \(count)" : nil,
            milliseconds: expires && chance(400) ? UInt64.random(in: 30...300, using: &random) : nil)
    }

    private mutating func force() -> Operation {
        let experiment = element(of: Self.known)
        return .force(experiment: experiment.id, variation: chance(400) ? nil : element(of: experiment.variations))
    }

    private mutating func assign() -> Operation {
        let experiment = element(of: Self.known)
        return .assign(experiment: experiment.id, among: experiment.variations)
    }

    private mutating func experiment() -> String {
        chance(500) ? element(of: Self.free) : element(of: Self.known).id
    }
}
