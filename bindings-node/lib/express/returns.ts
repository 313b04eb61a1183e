import type { Request, Response } from 'express'

import { isPromise } from '../http.js'
import type { Admission } from '../index.js'
import { SetupError } from './checks.js'
import type { Settings } from './options.js'

/**
 * Gives back what a request took, once its response shows that it does not count: `skipFailedRequests`, which also
 * means a client that has gone before the response was complete, and `skipSuccessfulRequests`.
 */
export function watch(settings: Settings, admission: Admission, request: Request, response: Response): void {
  let isOver = false
  const over = (gives: boolean) => {
    if (isOver) return
    isOver = true
    if (gives) void admission.undo()
  }
  const finished = () => judge(settings, request, response, over)
  const broken = () => over(settings.skipFailedRequests === true)
  if (response.writableFinished) return finished()
  if (response.destroyed) return broken()
  response.once('finish', finished)
  response.once('close', () => {
    if (!response.writableEnded) broken()
  })
  // After an error comes a `close` too, and a listener for errors would hide them from the application.
}

function judge(settings: Settings, request: Request, response: Response, over: (gives: boolean) => void): void {
  const { requestWasSuccessful, skipFailedRequests, skipSuccessfulRequests } = settings
  const told = (wasSuccessful: boolean) => over((wasSuccessful ? skipSuccessfulRequests : skipFailedRequests) === true)
  if (requestWasSuccessful === undefined) return told(response.statusCode < 400)
  const failed = (error: unknown) => {
    over(false)
    const what = `requestWasSuccessful has failed: ${String(error)}`
    const report = new SetupError('ERR_TIDEGATE_REQUEST_WAS_SUCCESSFUL', what, 'what the request took stays taken')
    ;(settings.logger ?? console).error(report)
  }
  try {
    const answer = requestWasSuccessful(request, response)
    if (isPromise(answer)) answer.then(told, failed)
    else told(answer)
  } catch (error) {
    failed(error)
  }
}
