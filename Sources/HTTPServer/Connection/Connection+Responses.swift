/// Responses on their way from the handlers to the output. ``Connection/flush()`` sends them.
extension Connection: ResponseTarget {
    var loop: EventLoop { worker.loop }

    @inline(__always)
    func respond(_ response: Response, to sequence: UInt64) {
        guard !isClosed else { return }
        machine.responses.add(response, to: sequence)
        writeResponses()
    }

    func continueStream(_ event: StreamEvent, of sequence: UInt64) {
        guard !isClosed else { return }
        guard machine.responses.continueStream(event, of: sequence, date: worker.date) else {
            // The client sees from the cut connection that the response is incomplete.
            return close()
        }
        writeResponses()
    }

    @inline(__always)
    private func writeResponses() {
        while let (request, status) = machine.responses.writeNext(date: worker.date) {
            worker.requestCompleted(request, status, peer)
        }
        worker.activate(self)
    }

    func resumeReading() {
        guard !isClosed else { return }
        machine.resumeBody(now: worker.now)
        worker.activate(self)
    }

    func setCaller(_ name: String, of sequence: UInt64) {
        if worker.application.logsRequests { machine.responses.setCaller(name, of: sequence) }
    }
}
