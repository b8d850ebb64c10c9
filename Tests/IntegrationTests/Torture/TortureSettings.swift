import Foundation

/// How long and with which seed; from the environment, so that a long run is asked for by hand.
enum TortureSettings {
    /// Seconds for each of the runs; `nil`: the short form, a few rounds.
    private static let seconds = number("HOLDFAST_TORTURE_SECONDS")

    static var isLong: Bool { seconds != nil }

    /// The short form takes the same one each time, a long run another.
    static let seed = number("HOLDFAST_TORTURE_SEED") ?? (seconds == nil ? 1 : UInt64.random(in: 0..<1_000_000))

    /// The numbers of the rounds to go through.
    static func rounds(short: Int) -> some Sequence<Int> {
        let deadline = ContinuousClock.now + .seconds(Int(seconds ?? 0))
        return (0...).lazy.prefix { isLong ? .now < deadline : $0 < short }
    }

    private static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }
}
