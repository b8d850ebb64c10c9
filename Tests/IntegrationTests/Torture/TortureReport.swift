/// What a run went through.
struct TortureReport: CustomStringConvertible {
    var rounds = 0
    var endings: [TortureScenario.Ending: Int] = [:]
    var faults = 0
    var counts = Load.Counts()
    /// Operations that the checker explained.
    var checked = 0
    /// The longest time from the start of a server to its being ready, and from the end of faults to the same.
    var slowestStart = Duration.zero
    var slowestRecovery = Duration.zero
    var longestShutdown = Duration.zero

    var description: String {
        let ends = endings.map { "\($0.key) \($0.value)" }.sorted().joined(separator: ", ")
        return
            "\(rounds) rounds (\(ends)), \(faults) faults, \(counts.answered) answered (\(counts.acknowledged) changes), "
            + "\(counts.refused) refused, \(counts.cut) cut (\(counts.reset) reset), \(checked) checked, "
            + "ready in \(slowestStart), recovered in \(slowestRecovery), shut down in \(longestShutdown)"
    }
}
