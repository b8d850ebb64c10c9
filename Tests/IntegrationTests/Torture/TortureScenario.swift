/// What is done to the servers of a run while clients work on them.
struct TortureScenario: Sendable, CustomStringConvertible {
    enum Disk {
        case sound
        /// Fails from time to time.
        case failing
    }

    enum Ending {
        case kill
        /// The computer goes off: what was not synchronised may be lost.
        case powerLoss
        case termination
        /// Killed while it shuts down.
        case killDuringTermination
    }

    let description: String
    var servers = 1
    var disk = Disk.sound
    var endings: [Ending] = [.kill]

    static let all = [
        TortureScenario(description: "killed"),
        TortureScenario(description: "killed, two on one file", servers: 2),
        TortureScenario(description: "killed while it shuts down", endings: [.killDuringTermination]),
        TortureScenario(description: "shut down", endings: [.termination]),
        TortureScenario(description: "shut down, two on one file", servers: 2, endings: [.termination]),
        TortureScenario(description: "on a failing disk", disk: .failing, endings: [.kill, .termination]),
        TortureScenario(
            description: "on a failing disk, two on one file", servers: 2, disk: .failing,
            endings: [.kill, .termination]),
        TortureScenario(description: "power lost", endings: [.powerLoss]),
        TortureScenario(description: "power lost, two on one file", servers: 2, endings: [.powerLoss]),
        TortureScenario(description: "power lost, on a failing disk", disk: .failing, endings: [.powerLoss]),
    ]
}
