import Foundation

/// How long, in time or rounds, and with which seed; from the environment, so that a long run is asked for by hand.
enum TortureSettings {
    /// Seconds for each of the runs; `nil`: the short form, a few rounds.
    private static let seconds = number("HOLDFAST_TORTURE_SECONDS")

    /// Rounds of each of the runs, in place of ``seconds``.
    private static let rounds = number("HOLDFAST_TORTURE_ROUNDS")

    static var isLong: Bool { seconds != nil || rounds != nil }

    /// The short form takes the same one each time, a long run another.
    static let seed = number("HOLDFAST_TORTURE_SEED") ?? (!isLong ? 1 : UInt64.random(in: 0..<1_000_000))

    /// A part of the descriptions of the runs to make; `nil`: all.
    static let only = ProcessInfo.processInfo.environment["HOLDFAST_TORTURE_ONLY"]

    /// The numbers of the rounds to go through.
    static func rounds(short: Int) -> some Sequence<Int> {
        let deadline = ContinuousClock.now + .seconds(Int(seconds ?? 0))
        let count = rounds.map { Int($0) } ?? short
        return (0...).lazy.prefix { seconds != nil ? .now < deadline : $0 < count }
    }

    private static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }
}
