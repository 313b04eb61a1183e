// An application as users write them: nest.test.mjs compiles it, and serves it on both platforms.
import { Controller, Get, HttpException, Injectable, Module, Post, Req, type Type, UseGuards } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import type { Request } from 'express'
import type { FastifyRequest } from 'fastify'
import {
  admissionOf,
  type AsyncOptions,
  type ModuleExtras,
  RateLimit,
  RateLimitGuard,
  SkipRateLimit,
  TidegateModule,
  type TidegateOptions,
} from 'tidegate/nest'

const from = (request: FastifyRequest) => request.headers['x-from'] as string

@Controller('cats')
@RateLimit({ limit: 2, ttl: '1m' })
export class CatsController {
  @Get('one')
  one() {
    return 'one'
  }

  @Get('two')
  two() {
    return 'two'
  }

  @Get('own')
  @RateLimit('1/m')
  own() {
    return 'own'
  }

  @Get('free')
  @SkipRateLimit()
  free() {
    return 'free'
  }

  @Get('keyed')
  @RateLimit({
    limit: async (request: Request) => (from(request as never) === 'rich' ? 3 : 2),
    ttl: 60_000,
    key: from,
    cost: ({ headers }) => Number(headers['x-cost'] ?? 1),
    name: 'keyed',
  })
  keyed() {
    return 'keyed'
  }

  @Get('broken')
  @RateLimit({ limits: [{ limit: 2, window: '1m' }, '100/h'], refundStatus: ['5xx'] })
  broken() {
    throw new HttpException('broken', 503)
  }

  @Get('thrown')
  @RateLimit({
    limit: 5,
    ttl: '1m',
    key: () => {
      throw new HttpException('no key', 418)
    },
  })
  thrown() {
    return 'thrown'
  }
}

@Controller('dogs')
export class DogsController {
  @Get()
  all(@Req() request: Request) {
    return { route: admissionOf(request)?.route }
  }

  @Get('login')
  @RateLimit({ rule: 'login' })
  login() {
    return 'in'
  }

  @Get('sign-in')
  @RateLimit({ rule: 'login' })
  signIn() {
    return 'in'
  }
}

@Controller()
export class RoutesController {
  @Post('login')
  login() {
    return 'in'
  }

  @Post('sign-in')
  @RateLimit({ route: 'login' })
  signIn() {
    return 'in'
  }

  @Get('api/health')
  @SkipRateLimit()
  health() {
    return 'well'
  }

  @Get('api/x')
  @UseGuards(RateLimitGuard)
  twice() {
    return 'x'
  }
}

@Injectable()
export class Settings {
  options: TidegateOptions = { default: '1/m', rules: { login: '2/m' } }
}

@Module({ providers: [Settings], exports: [Settings] })
export class SettingsModule {}

/** Options that a provider has. */
export const ASYNC: AsyncOptions = {
  imports: [SettingsModule],
  inject: [Settings],
  useFactory: async (settings: Settings) => settings.options,
}

/** Serves controllers with all of their handlers guarded. */
export async function serve(
  platform: 'express' | 'fastify',
  options: (TidegateOptions & ModuleExtras) | AsyncOptions,
  controllers: Type<unknown>[],
) {
  const tidegate = 'useFactory' in options ? TidegateModule.forRootAsync(options) : TidegateModule.forRoot(options)

  @Module({ imports: [tidegate], controllers, providers: [{ provide: APP_GUARD, useClass: RateLimitGuard }] })
  class AppModule {}

  const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter()
  return NestFactory.create(AppModule, adapter, { logger: false, abortOnError: false, forceCloseConnections: true })
}
